"""What `tideq bench` is made of: processes that load a service and work for it, what they find, how it is shown."""
