"""History: every task and every transition in PostgreSQL, and the way back from there to the queue."""
