"""How large the tests under load are: enough to see what goes wrong, or with HISTORY_SCALE=full what is promised.

At full size they take minutes, and tell how long things took: run them with `-s --timeout 0`, on an idle machine.
"""

import os

IS_FULL = os.environ.get("HISTORY_SCALE") == "full"
LIVE_COUNT = 100_000 if IS_FULL else 20_000
OUTAGE_SECONDS = 60 if IS_FULL else 6
KILL_AFTER_SECONDS = (2.0,) * 15 if IS_FULL else (0.1, 0.4, 1.0)
PATIENCE_SECONDS = 300 if IS_FULL else 90


def tell(line: str) -> None:
    """For whoever runs the full size."""
    if IS_FULL:
        print(line)  # noqa: T201 - that is what it is for
