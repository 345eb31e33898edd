"""TideQ beside the queues people use: the same machine, the same run, the same task that does nothing.

`python -m bench.peers` (or `make peers`) makes an environment for each under `.peers`, never part of the project's own,
and lets them take turns. docs/performance.md says what is measured and what it does not show.

One driver a peer lies in `drivers/`: a client that takes orders (`drivers/protocol.py`) and the library's own worker.
"""
