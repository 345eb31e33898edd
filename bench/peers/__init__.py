"""Compares TideQ with other task queues: the same machine, the same run, the same task that does nothing.

`python -m bench.peers` (or `make peers`) creates an environment for each peer under `.peers`, separate from the
project's own, and runs the peers in turns. docs/performance.md explains what is measured and what it does not show.

Each peer has a driver in `drivers/`: a client that takes orders (`drivers/protocol.py`), and the library's own worker.
"""
