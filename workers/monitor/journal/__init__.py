"""Reads transitions from the outbox, once for all monitors, and hands them to listeners that log, trace and count."""
