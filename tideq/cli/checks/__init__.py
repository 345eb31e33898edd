"""What `tideq doctor` looks at, a file for each thing that can be at fault."""
