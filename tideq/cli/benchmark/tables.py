"""Prints a run: as a table with remarks, or as JSON."""

from tideq.cli.benchmark.findings import Figure, Run, as_json, overall, ratio
from tideq.cli.benchmark.words import meaning, number
from tideq.cli.output import Format, print_line, table

TITLES = ("", "tasks", "tasks/s", "p50 ms", "p95 ms", "p99 ms", "service CPU a task")
HEADINGS = {
    "enqueue": "Submitting",
    "process": "Processing",
    "latency": "Latency",
    "depth": "By queue depth",
    "payload": "By payload size",
    "workers": "By number of worker processes",
}


def show_run(run: Run, before: Run | None, style: Format) -> None:
    if style == "table":
        _show_table(run, before)
    else:
        print_line(as_json(run).decode().strip())


def _show_table(run: Run, before: Run | None) -> None:
    old = {figure.name: figure for figure in before.figures} if before else {}
    rows = list[list[str]]()
    for group, heading in HEADINGS.items():
        if members := [figure for figure in run.figures if figure.group == group]:
            rows.append([heading, *[""] * (len(TITLES) - 1 + bool(old))])
            rows += [_row(figure, old) for figure in members]
    titles, *lines = _aligned([[*TITLES, *(["times before"] if old else [])], *rows])
    for line in table(lines, titles):
        print_line(line)
    _show_words(run, before, old)


def _show_words(run: Run, before: Run | None, old: dict[str, Figure]) -> None:
    print_line("")
    for sentence in meaning(run):
        print_line(sentence)
    shared = overall(ratio(figure, old[figure.name]) for figure in run.figures if figure.name in old)
    if before is not None and shared is not None:
        print_line(f"Compared with {before.at}: {shared:.2f} × as good, on the (geometric) average.")
    for remark in run.notes:
        print_line(f"Note: {remark}.")


def _row(figure: Figure, old: dict[str, Figure]) -> list[str]:
    times = figure.times
    cells = [
        f"  {figure.title}",
        f"{figure.tasks:,}",
        _number(figure.per_second),
        *(_number(value) for value in ((times.p50, times.p95, times.p99) if times else (None, None, None))),
        "-" if figure.service_cpu_us is None else f"{number(figure.service_cpu_us)} µs",
    ]
    if not old:
        return cells
    better = ratio(figure, old[figure.name]) if figure.name in old else None
    return [*cells, "-" if better is None else f"{better:.2f}"]


def _aligned(rows: list[list[str]]) -> list[list[str]]:
    """Right-aligns the numbers under their titles."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[row[0], *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))] for row in rows]


def _number(value: float | None) -> str:
    return "-" if value is None else number(value)
