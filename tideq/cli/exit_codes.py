"""The exit codes of every command; a failure also prints one line on standard error.

0 done, 1 the task or operation failed, 2 wrong usage, 3 not found, 4 not allowed, 5 cannot connect, 130 interrupted.
"""

import sys
from typing import NoReturn

from tideq.cli.output import note
from tideq.queue_core.errors import InvalidRequest, Unavailable

OK, FAILED, USAGE, NOT_FOUND, NOT_ALLOWED, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


def stop(why: str, code: int) -> NoReturn:
    note(f"error: {why}")
    sys.exit(code)


def stop_with(error: Exception) -> NoReturn:
    """Ends an operator's command: 5 for an unreachable store or database, 2 for wrong settings and URLs, else 1."""
    if isinstance(error, Unavailable):
        stop(str(error), UNREACHABLE)
    stop(str(error), USAGE if isinstance(error, (ValueError, InvalidRequest)) else FAILED)
