"""The `tideq` command, from its first line: nothing heavy is imported before signals end the process.

The commands themselves are in `commands.py`.
"""

import sys

from tideq.cli.early_signals import end_on_signals

INTERRUPTED = 130


def main() -> None:
    """Ends with 2 after wrong usage, with 130 after Ctrl-C, with 0 where the reader of the output has gone."""
    end_on_signals()
    try:
        from tideq.cli.commands import run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
