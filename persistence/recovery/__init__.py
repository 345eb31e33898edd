"""Recovery: compares a store with history before it is used, and restores it from history."""
