"""The queue: what a task is, how it may move, and the one sorted set that holds every live task.

Start with `transitions.py`, then `queue.py`. This package uses neither HTTP nor PostgreSQL.
"""
