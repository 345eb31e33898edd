"""Incompatible changes that the rolling upgrade must find: each is put into a copy of this tree, to which is upgraded.

`python -m tests.upgrade.planted [word…]` runs those whose name has the words, or all, and prints what found each. Not
part of the usual run but `make upgrade-planted`: each takes as long as a rolling upgrade, and what cannot be read takes
its time to drain.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.upgrade.rolling import PARTS, TREE, baseline, upgrade_and_back


class Edit(NamedTuple):
    path: str
    right: str
    wrong: str


RECORD, VIEWS = "queue_core/scripts/record.py", "queue_core/scripts/task_view.py"
ATTEMPT = '    Field("attempt", "text", "number of the current or last attempt"),\n'
TIMEOUT = '    Field("timeout_ms", "text", "how long one execution may take"),\n'
CHANGES: dict[str, tuple[Edit, ...]] = {
    "two fields of the record change places": (
        Edit(RECORD, TIMEOUT + ATTEMPT, ATTEMPT + TIMEOUT),
        Edit(VIEWS, "timeout_ms, attempt, _lease", "attempt, timeout_ms, _lease"),
    ),
    "a field of stream entries has another name": (
        Edit("queue_core/scripts/include/outbox_append.lua", "'now_ms', now_text", "'at_ms', now_text"),
        Edit("queue_core/scripts/ended_counts.lua", "task_id ~= 'now_ms'", "task_id ~= 'at_ms'"),
        Edit("persistence/replication/batch.py", 'fields[b"now_ms"]', 'fields[b"at_ms"]'),
        Edit("queue_core/outbox/reader.py", 'fields.get(b"now_ms"', 'fields.get(b"at_ms"'),
        Edit("queue_core/outbox/stream.py", 'int(fields[b"now_ms"])', 'int(fields[b"at_ms"])'),
        Edit("workers/monitor/journal/transition.py", 'fields[b"now_ms"]', 'fields[b"at_ms"]'),
    ),
    "records are written in the format that only this version knows": (
        Edit(
            "queue_core/scripts/include/guard.lua",
            "format_number = format_numbers[meta[8]]",
            "format_number = '4\\0'",
        ),
    ),
}


def plant(edits: tuple[Edit, ...], folder: Path) -> Path:
    """A copy of everything that processes import, with the change in it."""
    for part in PARTS:
        shutil.copytree(TREE / part, folder / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path, right, wrong in edits:
        text = (folder / path).read_text()
        if right not in text:
            raise LookupError(f"{path} no longer says {right!r}: plant this change anew")
        (folder / path).write_text(text.replace(right, wrong))
    return folder


def _found(folder: Path, edits: tuple[Edit, ...]) -> list[str]:
    before, after = baseline(folder / "before"), plant(edits, folder / "after")
    try:
        report, problems = upgrade_and_back(folder / "run", before, after)
    except ValueError as error:
        return [f"what looks into the store cannot read it: {error}"]
    return [*report.problems, *sorted(set(problems))]


def main(words: list[str]) -> int:
    missed = 0
    chosen = {name: each for name, each in CHANGES.items() if not words or any(word in name for word in words)}
    for name, edits in chosen.items():
        folder = Path(tempfile.mkdtemp(prefix="upgrade-"))
        found = "; ".join(_found(folder, edits)[:4])
        is_missed = not found
        missed += is_missed
        sys.stdout.write(f"{name}: {'MISSED' if is_missed else f'found: {found}'}\n")
        sys.stdout.flush()
        shutil.rmtree(folder)
    sys.stdout.write(f"{len(chosen) - missed} of {len(chosen)} found\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
