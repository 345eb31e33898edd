"""SIGTERM until a command has a handler of its own: it ends the process at once.

Linux drops signals that the first process of a container has no handler for. A worker that starts would miss its
SIGTERM, and claim tasks until it is killed.

Not covered: the milliseconds in which Python itself starts, before any line of ours. SIGINT needs nothing: Python
handles it from there on, and it ends every command as KeyboardInterrupt.
"""

import os
import signal
from types import FrameType


def end_on_signals() -> None:
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    """Nothing is unwound: until now nothing was begun that others must be told of."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    # The first process of a container outlives its own signal.
    os._exit(128 + number)
