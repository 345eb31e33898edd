"""Runs the two stores in the foreground until SIGTERM or Ctrl-C, for `python -m tideq.embedded`."""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from tideq.embedded.embedded_errors import EmbeddedError
from tideq.embedded.supervisor import EmbeddedStores

CHECK_SECONDS = 1


def run_in_foreground(data_dir: Path) -> None:
    """REDIS_URL and DATABASE_URL take precedence: a store with a URL is not started."""
    leave_on_signal()
    try:
        _run(data_dir)
    except EmbeddedError as error:
        sys.exit(f"error: {error}")


def leave_on_signal() -> None:
    """The first signal unwinds the `with` blocks; later signals are ignored, so that the clean-up completes."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        sys.exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)


def _run(data_dir: Path) -> None:
    with EmbeddedStores(
        data_dir,
        redis_url=os.environ.get("REDIS_URL"),
        database_url=os.environ.get("DATABASE_URL"),
        on_progress=_print_line,
    ) as stores:
        _print_line(f"REDIS_URL={stores.redis_url}")
        _print_line(f"DATABASE_URL={stores.database_url}")
        while True:
            stores.check()
            time.sleep(CHECK_SECONDS)


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
