"""The `tideq` command: installs the early signal handlers before it imports the commands.

The commands themselves are in `commands.py`.
"""

import sys

from tideq.cli.early_signals import end_on_signals

INTERRUPTED = 130


def main() -> None:
    """Exits with 2 after wrong usage, 130 after Ctrl-C, and 0 when the reader of a pipe has closed it."""
    end_on_signals()
    try:
        from tideq.cli.commands import run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
