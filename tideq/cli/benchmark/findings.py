"""What a run found, as it is kept: one flat list of figures, so that two runs can be laid side by side.

The file is for other programs and for `--compare`: fields may be added with a default, never renamed.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from tideq.cli.benchmark.plan import Plan

FORMAT = 1
PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100)


class Times(msgspec.Struct, frozen=True):
    """Milliseconds. `curve` is pairs of a percentile and what that share did not exceed."""

    p50: float
    p95: float
    p99: float
    curve: tuple[tuple[float, float], ...]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Unique in a run, and the same in every run: `depth.process.10000`."""
    title: str
    group: str
    series: str = ""
    x: float | None = None
    """What is varied, where the group is a sweep."""
    tasks: int
    seconds: float
    per_second: float | None = None
    payload_bytes: int = 0
    times: Times | None = None
    load_cpu_share: float | None = None
    """How much of one core each process that submitted needed."""
    worker_cpu_share: float | None = None
    service_cpu_us: float | None = None
    """A task, of the processes behind the service's address."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """That of the run; the service's may be another."""

    cpus: int
    system: str
    python: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    at: str
    tideq: str
    service_version: str = ""
    url: str
    task_type: str = ""
    machine: Machine
    plan: Plan
    figures: tuple[Figure, ...]
    submitted: int
    processed: int
    left: int
    """After all was done, in the queue."""
    notes: tuple[str, ...] = ()


def times(milliseconds: Sequence[float]) -> Times | None:
    if not milliseconds:
        return None
    ordered = sorted(milliseconds)
    curve = tuple((share, round(at(ordered, share), 3)) for share in PERCENTILES)
    known = dict(curve)
    return Times(known[50], known[95], known[99], curve)


def at(ordered: Sequence[float], percentile: float) -> float:
    """The smallest value that this share does not exceed."""
    return ordered[max(math.ceil(len(ordered) * percentile / 100) - 1, 0)]


def seconds_until(count: int, began: float, moments: Mapping[int, int]) -> float:
    """From the beginning to when so many were done, by the millisecond; those that came after do not count."""
    last, done = began, 0
    for moment in sorted(moments):
        if done < count:
            last, done = moment / 1000, done + moments[moment]
    return max(last - began, 0.001)


def ratio(figure: Figure, before: Figure) -> float | None:
    """How many times better than before: more a second, or less time."""
    if figure.per_second and before.per_second:
        return figure.per_second / before.per_second
    if figure.times and before.times and figure.times.p50:
        return before.times.p50 / figure.times.p50
    return None


def overall(ratios: Iterable[float | None]) -> float | None:
    known = [each for each in ratios if each]
    return statistics.geometric_mean(known) if known else None


def read_run(path: Path) -> Run:
    """Raises ValueError where the file cannot be used."""
    try:
        run = msgspec.json.decode(path.read_bytes(), type=Run)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no file that --json wrote: {error}") from error
    if run.format > FORMAT:
        raise ValueError(f"{path} was written by a later tideq than this")
    return run


def as_json(run: Run) -> bytes:
    return msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n"
