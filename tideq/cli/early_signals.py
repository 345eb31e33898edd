"""Handles SIGTERM until a command installs its own handler: the process ends at once.

Linux drops signals for which the first process of a container has no handler. A starting worker would miss its
SIGTERM, and claim tasks until it is killed.

Not covered: the milliseconds before Python runs the first line of this package. SIGINT needs no handler: Python turns
it into KeyboardInterrupt.
"""

import os
import signal
from types import FrameType


def end_on_signals() -> None:
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    """No cleanup: at this point the process holds no task and is registered nowhere."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    # The kernel ignores a signal that the first process of a container sends to itself.
    os._exit(128 + number)
