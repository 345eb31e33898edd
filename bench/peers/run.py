"""A whole run: its machine and size, and the samples of all peers, stored as JSON."""

import os
import platform
from pathlib import Path

import msgspec

from bench.figures import Figure
from bench.peers.rounds import BEST, Results


class Run(msgspec.Struct):
    machine: str
    size: str
    aof: str
    results: Results = msgspec.field(default_factory=Results)

    def figure(self, name: str, field: str, kind: str = BEST) -> Figure | None:
        """None where the run has no sample of this field."""
        values = self._values(name, field, kind)
        return Figure(tuple(values.values())) if values else None

    def median(self, name: str, field: str, kind: str = BEST) -> float | None:
        found = self.figure(name, field, kind)
        return found.median if found else None

    def ratio(
        self, name: str, base: str, field: str, kind: str = BEST, *, base_field: str | None = None
    ) -> Figure | None:
        """The ratio of each round, so that a disturbance of both cancels out."""
        ours, theirs = self._values(name, field, kind), self._values(base, base_field or field, kind)
        both = [ours[number] / theirs[number] for number in ours if theirs.get(number)]
        return Figure(tuple(both)) if both else None

    def _values(self, name: str, field: str, kind: str) -> dict[int, float]:
        measured = self.results.get(name)
        samples = measured.samples.get(kind, []) if measured else []
        values = {sample.round_number: getattr(sample, field) for sample in samples}
        return {number: value for number, value in values.items() if value is not None}


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} on {platform.machine()}, Python {platform.python_version()}"


def write_json(path: Path, run: Run) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run)))


def read_json(path: Path) -> Run:
    return msgspec.json.decode(path.read_bytes(), type=Run)
