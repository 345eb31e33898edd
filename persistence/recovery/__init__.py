"""A store that cannot be trusted: comparing it with history, and mending it."""
