"""The `tideq` command. The commands themselves are in `commands.py`, which is imported last.

Until a command installs its own handler, SIGTERM ends the process at once. Linux drops signals for which the first
process of a container has no handler: a starting worker would miss its SIGTERM, and claim tasks until it is killed.

Not covered: the milliseconds before Python runs the first line of this package. SIGINT needs no handler: Python turns
it into KeyboardInterrupt.
"""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


def main() -> None:
    """Exits with 2 after wrong usage, 130 after Ctrl-C, and 0 when the reader of a pipe has closed it."""
    signal.signal(signal.SIGTERM, _end)
    try:
        from tideq.cli.commands import run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _end(number: int, _frame: FrameType | None) -> None:
    """No cleanup: at this point the process holds no task and is registered nowhere."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    # The kernel ignores a signal that the first process of a container sends to itself.
    os._exit(128 + number)
