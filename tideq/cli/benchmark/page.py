"""A run as one page: nothing but this file is needed to read it, and it asks nobody for anything."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from tideq.cli.benchmark.charts import Bar, Series, bar_chart, line_chart
from tideq.cli.benchmark.findings import Figure, Run, overall, ratio
from tideq.cli.benchmark.tables import HEADINGS
from tideq.cli.benchmark.words import bytes_in_words, meaning, number

STYLE = Path(__file__).with_name("page.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
TILES = {
    "enqueue.single": ("submitted one by one", "tasks/s"),
    "enqueue.batch": ("submitted in batches", "tasks/s"),
    "process": ("done by no-op workers", "tasks/s"),
    "latency.pickup": ("submission to handler, median", "ms"),
}
COLUMNS = ("", "tasks", "tasks/s", "p50 ms", "p95 ms", "p99 ms", "service CPU, µs a task")
FROM_PERCENTILE = 50
MARK = (
    '<p class="mark"><svg viewBox="0 0 34 18" aria-hidden="true"><path d="M2 6q5 -6 10 0t10 0t10 0'
    'M2 13q5 -6 10 0t10 0t10 0"/></svg>TideQ bench</p>'
)

Old = dict[str, Figure]


def page(run: Run, before: Run | None = None) -> str:
    old: Old = {figure.name: figure for figure in before.figures} if before else {}
    body = "".join((_head(run, before, old), _tiles(run, old), _charts(run, old), _table(run, old), _foot(run)))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"/><link rel="icon" href="data:,"/>'
        f"<title>TideQ benchmark, {escape(run.at)}</title><style>{STYLE.read_text()}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _head(run: Run, before: Run | None, old: Old) -> str:
    machine = f"{run.machine.cpus} CPUs, {run.machine.system}, Python {run.machine.python}"
    about = f"{run.url} · {run.at} · tideq {run.tideq} · {machine}"
    lines = [MARK, "<h1>How much this service does</h1>", f'<p class="about">{escape(about)}</p>']
    shared = overall(ratio(figure, old[figure.name]) for figure in run.figures if figure.name in old)
    if before is not None and shared is not None:
        kind = "better" if shared >= 1 else "worse"
        lines.append(
            f'<p class="about">Compared with {escape(before.at)} (tideq {escape(before.tideq)}): '
            f'<strong class="{kind}">{shared:.2f} × as good</strong> on the geometric average.</p>'
        )
    return f"<header>{''.join(lines)}</header>"


def _tiles(run: Run, old: Old) -> str:
    figures = {figure.name: figure for figure in run.figures}
    tiles = [_tile(figures[name], what, unit, old) for name, (what, unit) in TILES.items() if name in figures]
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _tile(figure: Figure, what: str, unit: str, old: Old) -> str:
    value = figure.per_second if unit == "tasks/s" else figure.times.p50 if figure.times else None
    shown = "–" if value is None else number(value)
    return (
        f'<section class="card tile"><p class="what">{escape(what)}</p>'
        f'<p class="figure">{shown} <span class="unit">{unit}</span></p>{_ratio_line(figure, old)}</section>'
    )


def _ratio_line(figure: Figure, old: Old) -> str:
    better = ratio(figure, old[figure.name]) if figure.name in old else None
    if better is None:
        return ""
    return f'<p class="ratio {"better" if better >= 1 else "worse"}">{better:.2f} × before</p>'


def _charts(run: Run, old: Old) -> str:
    drawn = [_throughput(run, old), _latency(run, old), *(_sweep(run, old, group) for group in SWEEPS), _words(run)]
    return f'<div class="charts">{"".join(drawn)}</div>'


def _throughput(run: Run, old: Old) -> str:
    chosen = [figure for figure in run.figures if figure.group in ("enqueue", "process") and figure.per_second]
    if not chosen:
        return ""
    names = {"enqueue": "submitted ", "process": "done by "}
    bars = [Bar(names[figure.group] + figure.title, figure.per_second or 0, _before(figure, old)) for figure in chosen]
    return _card("Throughput", "Tasks a second, as fast as it goes.", bar_chart(bars, "Tasks a second", number), [])


def _latency(run: Run, old: Old) -> str:
    series = list[Series]()
    for colour, figure in enumerate(figure for figure in run.figures if figure.group == "latency" and figure.times):
        series.append(Series(figure.series, _curve(figure), colour))
        if figure.name in old:
            series.append(Series(figure.series, _curve(old[figure.name]), colour, is_before=True))
    if not series:
        return ""
    chart = line_chart(series, "percentile", "milliseconds", lambda x: f"{x:g}", number, "even")
    says = f"Milliseconds that this share of the tasks did not exceed, at {run.plan.rate:g} tasks a second."
    return _card("Latency", says, chart, series)


def _curve(figure: Figure) -> list[tuple[float, float]]:
    return [point for point in (figure.times.curve if figure.times else ()) if point[0] >= FROM_PERCENTILE]


SWEEPS = {
    "depth": ("Depth", "Tasks a second while so many wait. Flat is good: depth costs nothing.", "tasks waiting"),
    "payload": ("Payload", "Tasks a second with larger and larger parameters.", "size of a task's parameters"),
    "workers": ("Worker processes", "No-op tasks a second. Straight up is good, until a core runs out.", "processes"),
}


def _sweep(run: Run, old: Old, group: str) -> str:
    figures = [figure for figure in run.figures if figure.group == group and figure.x and figure.per_second]
    if not figures:
        return ""
    title, says, x_title = SWEEPS[group]
    series = list[Series]()
    for colour, name in enumerate(dict.fromkeys(figure.series for figure in figures)):
        members = [figure for figure in figures if figure.series == name]
        series.append(Series(name, [(figure.x or 0, figure.per_second or 0) for figure in members], colour))
        was = [(figure.x or 0, before) for figure in members if (before := _before(figure, old))]
        series.append(Series(name, was, colour, is_before=True))
    words = bytes_in_words if group == "payload" else _whole
    chart = line_chart(series, x_title, "tasks a second", words, number, "linear" if group == "workers" else "log")
    return _card(title, says, chart, [each for each in series if each.points])


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _before(figure: Figure, old: Old) -> float | None:
    return old[figure.name].per_second if figure.name in old else None


def _card(title: str, says: str, chart: str, series: Sequence[Series]) -> str:
    legend = "".join(f'<li class="c{each.colour}">{escape(each.name)}</li>' for each in series if not each.is_before)
    if any(each.is_before for each in series):
        legend += '<li class="before">the run before</li>'
    return (
        f'<section class="card"><h2>{escape(title)}</h2><p class="says">{escape(says)}</p>{chart}'
        f'<ul class="legend">{legend}</ul></section>'
    )


def _words(run: Run) -> str:
    means = "".join(f"<li>{escape(sentence)}</li>" for sentence in meaning(run))
    mind = "".join(f"<li>{escape(remark[:1].upper() + remark[1:])}.</li>" for remark in run.notes)
    limits = f"<h2>What limits it</h2><ul>{mind}</ul>" if mind else ""
    return f'<section class="card words"><h2>What it means</h2><ul>{means}</ul>{limits}</section>'


def _table(run: Run, old: Old) -> str:
    heads = [*COLUMNS, *(["times before"] if old else [])]
    rows = list[str]()
    for group, heading in HEADINGS.items():
        if members := [figure for figure in run.figures if figure.group == group]:
            rows.append(f'<tr class="group"><td colspan="{len(heads)}">{escape(heading)}</td></tr>')
            rows += [_row(figure, old) for figure in members]
    titles = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return (
        f'<section class="card"><h2>Every figure</h2><div class="scroll"><table><thead><tr>{titles}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _row(figure: Figure, old: Old) -> str:
    spent = (figure.times.p50, figure.times.p95, figure.times.p99) if figure.times else (None, None, None)
    values = (figure.per_second, *spent, figure.service_cpu_us)
    cells = [figure.title, f"{figure.tasks:,}", *("–" if value is None else number(value) for value in values)]
    told = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    if not old:
        return f"<tr>{told}</tr>"
    better = ratio(figure, old[figure.name]) if figure.name in old else None
    kind = "" if better is None else " better" if better >= 1 else " worse"
    return f'<tr>{told}<td class="ratio{kind}">{"–" if better is None else f"{better:.2f}"}</td></tr>'


def _foot(run: Run) -> str:
    plan = run.plan
    settings = (
        f"{plan.tasks:,} tasks a step; client processes: {plan.clients}, connections: {plan.connections}, "
        f"tasks in a batch: {plan.batch}; worker processes: {plan.workers}; "
        f"payload where it is not swept: {bytes_in_words(plan.payload_bytes)}. "
        f"Figures of different machines do not compare."
    )
    return f"<footer>Measured by <code>tideq bench</code>. {escape(settings)}</footer>"
