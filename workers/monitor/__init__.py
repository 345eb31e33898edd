"""The service's own housekeeping, one duty a file. Any number of monitors at once is safe."""
