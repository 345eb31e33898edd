"""The queue: what a task is, how it may move, and the one sorted set that holds every live task.

Start with `transitions.py`, then `engine/queue.py`. It promises nothing about HTTP or history.
"""
