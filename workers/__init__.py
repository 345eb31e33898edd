"""Who does the work: the runtime in the user's process, and the service's own monitor."""
