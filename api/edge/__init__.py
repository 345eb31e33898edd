"""Checks before every route, and the bytes of every response after it."""
