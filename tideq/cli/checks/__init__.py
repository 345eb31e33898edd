"""The checks of `tideq doctor`, a file for each part that can be at fault."""
