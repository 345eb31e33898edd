"""The asynchronous client, from which the blocking one is made."""
