"""The HTTP face of the queue."""
