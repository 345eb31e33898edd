"""What was done and what was told, one line each, in the order it became known. Nothing of ours is imported here.

Instants are wall-clock milliseconds of the harness. An operation is `ok` when it was accepted, `fail` when it was
surely refused, `info` when nobody can tell: the answer was lost, or the service itself did not know.
"""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Note = dict[str, Any]
REFUSING_CODES = frozenset(
    {
        "queue-full",
        "too-many-submissions",
        "too-many-new-lanes",
        "outbox-full",
        "store-full",
        "lanes-exhausted",
        "store-replaced",
        "store-refused",
        "service-closing",
    }
)
"""Of a 429 or 503: nothing was done. Any other 503 may have been told after the deed."""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Notebook:
    def __init__(self, path: Path) -> None:
        self.notes: list[Note] = []
        self._file = path.open("w")

    def note(self, f: str, **facts: Any) -> Note:
        line = {"f": f, "t1": wall_ms(), **facts}
        self.notes.append(line)
        self._file.write(json.dumps(line) + "\n")
        return line

    def close(self) -> None:
        self._file.close()


def read_lines(path: Path) -> Iterable[Note]:
    """Of a file that killed processes wrote to: a line half written is not there."""
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [json.loads(line) for line in whole.splitlines()]


def outcome_of(status: int, code: str) -> str:
    if status < 300:
        return "ok"
    if status < 500 or code in REFUSING_CODES:
        return "fail"
    return "ok" if code == "durability-not-reached" else "info"
