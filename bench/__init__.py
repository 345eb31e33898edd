"""Measures the cost of the queue core for its store, and of the service for its machine: `python -m bench`.

The result is a report, not a test: nothing fails on a slow machine. Compare figures of one run only: its variants
alternate round by round, and every run also measures an empty script and bare commands.
"""
