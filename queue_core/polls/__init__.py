"""Waiting polls: which poll waits, and which one to wake."""
