"""The parts of `tideq top`: readings of a service, the state of the view, the frame drawn from it, the terminal."""
