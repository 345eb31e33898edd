"""How every command ends: with one line on standard error, and a code that scripts can tell apart.

0 done, 1 the task or operation failed, 2 asked wrongly, 3 not found, 4 not allowed, 5 cannot connect, 130 interrupted.
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
    """What keeps a command of the operator's from its work. Wrong settings and URLs are ValueErrors."""
    if isinstance(error, Unavailable):
        stop(str(error), UNREACHABLE)
    stop(str(error), USAGE if isinstance(error, (ValueError, InvalidRequest)) else FAILED)
