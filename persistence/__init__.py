"""History in PostgreSQL: every transition the queue made, and the way back from it."""
