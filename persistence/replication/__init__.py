"""Replication of the outbox into rows: every event exactly once, also if processes die in between."""
