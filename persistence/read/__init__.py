"""Reads of history: one task, lists of tasks, and how far history is behind the queue."""
