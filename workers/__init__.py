"""The worker runtime, in the user's process, and the monitor of the service."""
