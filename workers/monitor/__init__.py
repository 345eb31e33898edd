"""The background duties of the service, one duty a file. Any number of monitors may run at once."""
