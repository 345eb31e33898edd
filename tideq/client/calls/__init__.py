"""Every call the client makes, as data: shared by both of its forms."""
