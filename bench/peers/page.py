"""Formats a run as text for a terminal and for the docs: the goals, and the tables."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench.figures import Figure
from bench.peers.catalogue import FLOOR, HTTP_FLOOR, LEAN, OURS, PEERS, PLAIN
from bench.peers.goals import goals
from bench.peers.rounds import BEST, COMMON, TWO
from bench.peers.run import Run

BEGIN, END = "<!-- peers: written by `make peers` -->", "<!-- end of peers -->"
NOTHING = "–"
COMMON_PARTS = ("client", "workers", "store")
OUR_PARTS = ("API", "replicator", "PostgreSQL")


def text(run: Run) -> str:
    return "\n".join([*_heading(run), "", *_goals(run), "", *_tables(run), *_problems(run)]) + "\n"


def write(path: Path, run: Run) -> None:
    path.write_text(replaced(path.read_text(), BEGIN, END, text(run)))


def replaced(page: str, begin: str, end: str, text: str) -> str:
    """Returns the page with `text` between the markers; raises ValueError where a marker is missing."""
    before, began, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not began or not ended:
        raise ValueError(f"the page lacks the markers {begin} … {end}")
    return f"{before}{begin}\n{text}{end}{after}"


def _heading(run: Run) -> list[str]:
    when = f"{datetime.now(UTC):%Y-%m-%d}"
    rounds = max((len(each.samples.get(BEST, ())) for each in run.results.values()), default=0)
    return [
        f"A {run.size} run of {when} on {run.machine}: the median of {rounds} interleaved rounds,",
        f"± half of the distance from the lowest to the highest. Append-only file {run.aof} for every Valkey.",
    ]


def _goals(run: Run) -> list[str]:
    rows = [f"| {goal.name} | {goal.wanted} | {goal.measured} | {goal.verdict} |" for goal in goals(run)]
    return ["| goal | at least | measured | |", "| --- | --- | --- | --- |", *rows]


def _tables(run: Run) -> list[str]:
    lines = ["### Rates, each at its best setting", "", *_rates(run, BEST), "", *_costs(run), "", *_where(run)]
    if any(COMMON in each.samples for each in run.results.values()):
        lines += ["", "### Rates, all at ten at a time, ten a fetch, ten a bulk call", "", *_rates(run, COMMON)]
    return [*lines, "", "### Versions and settings", "", *_settings(run)]


def _rates(run: Run, kind: str) -> list[str]:
    columns = ["single/s", "… 32 at once", "… 256 at once", "bulk/s", "processed/s, 1 worker", "… ours ×"]
    fields = ["single", "single_at_once", "single_crowd", "bulk", "processed"]
    has_two = kind == BEST and any(TWO in each.samples for each in run.results.values())
    columns += ["2 workers"] if has_two else []
    columns += ["latency p50 / p99 ms"]
    lines = head("", columns)
    for name in _names(run, kind):
        cells = [_cell(run.figure(name, field, kind)) for field in fields]
        cells.append(_cell(run.ratio(OURS, name, "processed", kind)))
        cells += [_cell(run.figure(name, "processed", TWO))] if has_two else []
        cells.append(f"{_cell(run.figure(name, 'p50_ms', kind))} / {_cell(run.figure(name, 'p99_ms', kind))}")
        lines.append(row(name, cells))
    return lines


def _costs(run: Run) -> list[str]:
    columns = ["total", "… in ours", *COMMON_PARTS, "service and history", "a single submit", "bytes in the store"]
    lines = ["### CPU a task, µs, from bulk submission to acknowledgement", "", *head("", columns)]
    for name in _names(run, BEST):
        cells = [_cell(run.figure(name, "total_us")), _cell(run.ratio(name, OURS, "total_us"))]
        cells += [_cell(_cpu(run, name, "cpu_us", (part,))) for part in COMMON_PARTS]
        cells += [_cell(_cpu(run, name, "cpu_us", OUR_PARTS)), _cell(run.figure(name, "single_us"))]
        lines.append(row(name, [*cells, _cell(run.figure(name, "bytes_a_task"))]))
    return lines


def _where(run: Run) -> list[str]:
    """TideQ's own CPU, by process."""
    parts = (*COMMON_PARTS, *OUR_PARTS)
    lines = ["### Where our CPU goes, µs a task", "", *head("", ["total", *parts])]
    for name in (name for name in (OURS, PLAIN, LEAN) if run.results.get(name)):
        for label, kind in (("submitted in bulk", "bulk"), ("worked off", "work"), ("submitted singly", "single")):
            if total := run.figure(name, f"{kind}_us"):
                cells = [_cell(_cpu(run, name, f"{kind}_cpu_us", (part,))) for part in parts]
                lines.append(row(f"{name}: {label}", [_cell(total), *cells]))
    lag = run.figure(OURS, "caught_up_seconds")
    return [*lines, "", f"History had everything {_cell(lag)} s after the last acknowledgement."] if lag else lines


def _cpu(run: Run, name: str, field: str, parts: tuple[str, ...]) -> Figure | None:
    spent: list[dict[str, float]] = [getattr(sample, field) for sample in run.results[name].samples.get(BEST, [])]
    values = tuple(sum(each.get(part, 0.0) for part in parts) for each in spent)
    return Figure(values) if any(values) else None


def _settings(run: Run) -> list[str]:
    lines = head("", ["version", "store", "best setting"])
    stores = {peer.name: peer.store for peer in PEERS}
    for name, measured in run.results.items():
        samples = measured.samples.get(BEST, [])
        best = ", ".join(f"{key} {value}" for key, value in measured.settings.get(BEST, {}).items())
        lines.append(row(name, [samples[0].version if samples else NOTHING, stores.get(name, ""), best]))
    return lines


def _problems(run: Run) -> list[str]:
    failed = [f"- {name}: {measured.problem}" for name, measured in run.results.items() if measured.problem]
    return ["", "Not measured, or not to the end:", "", *failed] if failed else []


def _names(run: Run, kind: str) -> list[str]:
    """TideQ first, then the floors, then the others by their processing rate."""
    first = [name for name in (OURS, PLAIN, LEAN, FLOOR, HTTP_FLOOR) if name in run.results]
    rate: Callable[[str], float] = lambda name: run.median(name, "processed", kind) or 0.0  # noqa: E731
    others = sorted((name for name in run.results if name not in first), key=rate, reverse=True)
    return [name for name in (*first, *others) if run.results[name].samples.get(kind)]


def _cell(figure: Figure | None) -> str:
    return NOTHING if figure is None else str(figure).replace("_", " ").replace("%", " %")


def head(first: str, columns: list[str]) -> list[str]:
    return [row(first, columns), f"|{' --- |' * (len(columns) + 1)}"]


def row(name: str, cells: list[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"
