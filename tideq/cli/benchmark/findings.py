"""The results of a run: a flat list of figures, so that two runs can be compared by name.

The JSON file is read by other programs and by `--compare`: add fields with a default, never rename one.
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
    """Milliseconds. `curve` has pairs of a percentile and its value."""

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
    """The value that varies, in a sweep."""
    tasks: int
    seconds: float
    per_second: float | None = None
    payload_bytes: int = 0
    times: Times | None = None
    load_cpu_share: float | None = None
    """Cores used by the busiest submitting process."""
    worker_cpu_share: float | None = None
    service_cpu_us: float | None = None
    """For each task, of all processes behind the service's address."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of the benchmark; the service may run on another."""

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
    """The run's tasks still in the queue at the end."""
    notes: tuple[str, ...] = ()


def times(milliseconds: Sequence[float]) -> Times | None:
    if not milliseconds:
        return None
    ordered = sorted(milliseconds)
    curve = tuple((share, round(at(ordered, share), 3)) for share in PERCENTILES)
    by_percentile = dict(curve)
    return Times(by_percentile[50], by_percentile[95], by_percentile[99], curve)


def at(ordered: Sequence[float], percentile: float) -> float:
    """The value at a percentile of an ordered, non-empty sequence, without interpolation."""
    return ordered[max(math.ceil(len(ordered) * percentile / 100) - 1, 0)]


def seconds_until(count: int, began: float, moments: Mapping[int, int]) -> float:
    """Seconds from `began` until `count` tasks were completed, to the millisecond; later tasks do not count."""
    last, done = began, 0
    for moment in sorted(moments):
        if done < count:
            last, done = moment / 1000, done + moments[moment]
    return max(last - began, 0.001)


def ratio(figure: Figure, before: Figure) -> float | None:
    """How many times better than before: a higher rate or a shorter time. None where neither can be compared."""
    if figure.per_second and before.per_second:
        return figure.per_second / before.per_second
    if figure.times and before.times and figure.times.p50:
        return before.times.p50 / figure.times.p50
    return None


def overall(ratios: Iterable[float | None]) -> float | None:
    measured = [each for each in ratios if each]
    return statistics.geometric_mean(measured) if measured else None


def read_run(path: Path) -> Run:
    """Raises ValueError where the file cannot be used."""
    try:
        run = msgspec.json.decode(path.read_bytes(), type=Run)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} was not written by --json: {error}") from error
    if run.format > FORMAT:
        raise ValueError(f"{path} was written by a later version of tideq")
    return run


def as_json(run: Run) -> bytes:
    return msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n"
