"""What `tideq top` is made of: readings of a service, the frame they are drawn into, the view's state, the terminal."""
