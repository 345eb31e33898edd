"""The results of a run: a flat list of figures, so that two runs can be compared by name.

The JSON file is read by other programs and by `--compare`: add fields with a default, never rename one.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from tideq.cli.benchmark.plan import Plan
from tideq.cli.output import Format, print_line, table

FORMAT = 1
PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100)
TITLES = ("", "tasks", "tasks/s", "p50 ms", "p95 ms", "p99 ms", "service CPU a task")
HEADINGS = {
    "enqueue": "Submitting",
    "process": "Processing",
    "latency": "Latency",
    "depth": "By queue depth",
    "payload": "By payload size",
    "workers": "By number of worker processes",
}
BUSY = 0.85
"""A process that uses this share of a core can do little more."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


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


def bottlenecks(figures: Sequence[Figure], url: str) -> Iterator[str]:
    """What limited the run, apart from the service's store."""
    if urlsplit(url).hostname in LOOPBACK:
        yield "service, load and workers share this machine: each has less of it than it would have alone"
    if max((figure.load_cpu_share or 0 for figure in figures), default=0) > BUSY:
        yield "a submitting process kept a core busy: --clients 2 may get more out of the service"
    if max((figure.worker_cpu_share or 0 for figure in figures), default=0) > BUSY:
        yield "a worker process kept a core busy: more of them (--workers) may do more"
    if max(((each.service_cpu_us or 0) * (each.per_second or 0) / 1e6 for each in figures), default=0) > BUSY:
        yield "the service kept a core busy: `tideq serve --processes N` uses more of them"


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


def show_run(run: Run, before: Run | None, style: Format) -> None:
    if style != "table":
        print_line(as_json(run).decode().strip())
        return
    old = {figure.name: figure for figure in before.figures} if before else {}
    ratios = {figure.name: _ratio(figure, old.get(figure.name)) for figure in run.figures}
    rows = [[*TITLES, *(["times before"] if old else [])]]
    for group, heading in HEADINGS.items():
        if members := [figure for figure in run.figures if figure.group == group]:
            rows.append([heading, *[""] * (len(rows[0]) - 1)])
            rows += [[*_cells(figure), *([number(ratios[figure.name], "{:.2f}")] if old else [])] for figure in members]
    widths = [0, *(max(map(len, column)) for column in list(zip(*rows, strict=True))[1:])]
    titles, *lines = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    for line in table(lines, titles):
        print_line(line)
    print_line(f"\n{run.submitted:,} tasks were submitted, {run.processed:,} completed; {run.left:,} are left.")
    if before and (measured := [ratio for ratio in ratios.values() if ratio]):
        print_line(f"Compared with {before.at}: {statistics.geometric_mean(measured):.2f} × as good (geometric mean).")
    for remark in run.notes:
        print_line(f"Note: {remark}.")


def number(value: float | None, form: str = "") -> str:
    """Three digits, because a run is not more exact."""
    if value is None:
        return "-"
    if form:
        return form.format(value)
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def _cells(figure: Figure) -> list[str]:
    measured = [getattr(figure.times, name, None) for name in ("p50", "p95", "p99")]
    cpu = "-" if figure.service_cpu_us is None else f"{number(figure.service_cpu_us)} µs"
    return [f"  {figure.title}", f"{figure.tasks:,}", *map(number, (figure.per_second, *measured)), cpu]


def _ratio(figure: Figure, before: Figure | None) -> float | None:
    """How many times better than before: a higher rate or a shorter time. None where neither can be compared."""
    if before and figure.per_second and before.per_second:
        return figure.per_second / before.per_second
    if before and figure.times and before.times and figure.times.p50:
        return before.times.p50 / figure.times.p50
    return None
