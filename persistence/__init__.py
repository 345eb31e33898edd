"""History: every task and every transition in PostgreSQL, and the recovery of the store from it."""
