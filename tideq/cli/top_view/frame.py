"""Draws one frame of `tideq top` for a screen of a given size.

Names of tasks and workers are shown with control characters escaped, and never interpreted as markup.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from tideq.cli.circuits import blocked_types_text, is_blocked
from tideq.cli.output import printable
from tideq.cli.top_view.readings import Snapshot
from tideq.cli.top_view.view import COLUMNS, Table, TypeRow, View
from tideq.client import WorkerInfo
from tideq.client.models.queue import Depth

BARS = "▁▂▃▄▅▆▇█"
STYLES = {"active": "green", "draining": "yellow", "unhealthy": "red", "dead": "bright_black"}
STATES = ("queued", "assigned", "executing")
ENDED = ("completed", "failed", "cancelled", "dead_letter")
KEYS = "q quit  p pause  ←→ sort  r reverse  ↑↓ scroll  tab other table  space now"
FIXED_LINES = 13
"""Lines of a frame besides the rows of the two tables."""
MIN_ROWS = 2
MAX_TYPE_ROWS = 10


def frame(view: View, url: str, width: int, height: int, now: datetime) -> RenderableType:
    if view.reading is None:
        waiting = Text(printable(str(view.failure.error)) if view.failure else "connecting…")
        return Group(_title(view, url, width, now), waiting, _last_line(view))
    rows = height - FIXED_LINES
    if rows < MIN_ROWS:
        # Lines that do not fit are cut off; the last line may hold a question, so it comes second.
        return Group(_title(view, url, width, now), _last_line(view), *_numbers(view.reading, view.trend, width))
    types, workers = view.types(), view.workers()
    type_rows = min(len(types), max(rows // 3, 1), MAX_TYPE_ROWS)
    return Group(
        _title(view, url, width, now),
        *_numbers(view.reading, view.trend, width),
        Text(),
        _types(view, types[:type_rows]),
        Text(),
        _workers(view, workers[: max(rows - type_rows, 1)], now),
        _last_line(view),
    )


def plain_frame(view: View, url: str, now: datetime) -> RenderableType:
    """One frame with all rows, for output that is not a terminal."""
    assert view.reading is not None
    return Group(
        _title(view, url, 0, now),
        *_numbers(view.reading, (), 0),
        Text(),
        _types(view, view.types()),
        Text(),
        _workers(view, view.workers(), now),
    )


def _title(view: View, url: str, width: int, now: datetime) -> Text:
    line = Text(f"tideq  {printable(url)}", style="bold", no_wrap=True, overflow="ellipsis")
    if view.reading and (pause := view.reading.pause):
        details = " ".join(filter(None, [f"by {pause.paused_by}" if pause.paused_by else "", pause.reason]))
        line.append("  ").append(f" PAUSED {printable(details)}".rstrip() + " ", style="bold white on red")
    if view.failure:
        seconds = (now - view.failure.at).total_seconds()
        line.append("  ").append(f" NO ANSWER for {seconds:.0f} s ", style="bold white on red")
    elif view.reading and width:
        clock = view.reading.at.strftime("%H:%M:%S UTC")
        line.append(" " * max(width - line.cell_len - len(clock), 2)).append(clock, style="bright_black")
    return line


def _numbers(reading: Snapshot, trend: Iterable[float], width: int) -> list[Text]:
    stats = reading.stats
    queue, throughput, fleet = stats.queue, stats.throughput, stats.workers
    counts = {state: queue.by_state.get(state, 0) for state in STATES}
    duration = throughput.avg_task_duration_seconds
    rate = throughput.completed_last_minute / 60
    return [
        _line("depth", queue.total_depth, _pairs(counts)),
        _line("priority", "", _by_priority(queue)),
        _line("wait", "", f"p50 {_time(queue.p50_age_seconds)}  p95 {_time(queue.p95_age_seconds)}"
              f"  oldest {_time(queue.oldest_age_seconds)}  due {stats.due}"),
        _line("done", f"{rate:.3g}/s", f"{throughput.completed_last_minute} completed, "
              f"{throughput.failed_last_minute} failed in the last minute"
              + (f", {_time(duration)} each" if duration is not None else ""))
        .append(f"  {sparkline(trend, max(width - 78, 0))}", style="cyan"),
        _line("dead", stats.dead_letters, f"letters, {stats.recovery_stats.dead_letters_last_hour} in the last hour"
              f"  outbox {stats.outbox_length}"),
        _line("ended", "", _pairs({state: getattr(queue.totals, state) for state in ENDED})
              + (f"  since {queue.totals.since:%Y-%m-%d}" if queue.totals.since else "")),
        _line("workers", fleet.active, f"active  draining {fleet.draining}  unhealthy {fleet.unhealthy}"
              f"  dead {fleet.dead}  slots {fleet.used_capacity}/{fleet.total_capacity}"),
    ]  # fmt: skip


def _by_priority(queue: Depth) -> str:
    """Waiting tasks by priority, with the age of the oldest ready task."""
    oldest = queue.oldest_age_by_priority
    ages = {level: f" (oldest {_time(oldest[level])})" for level in queue.by_priority if oldest.get(level)}
    return "  ".join(f"{level} {count}{ages.get(level, '')}" for level, count in queue.by_priority.items())


def _line(title: str, number: Any, rest: str) -> Text:
    line = Text(f"{title:<9}", style="bright_black", no_wrap=True, overflow="ellipsis")
    if number != "":
        line.append(f"{number} ", style="bold")
    return line.append(printable(rest), style="default")


def sparkline(values: Iterable[float], width: int) -> str:
    """A bar for each value, the newest on the right; the highest value is a full bar."""
    shown = list(values)[-width:] if width else []
    top = max(shown, default=0)
    return "".join(BARS[round(value / top * (len(BARS) - 1))] if top else BARS[0] for value in shown)


def _types(view: View, rows: list[TypeRow]) -> Grid:
    grid = _grid(view, "types", ("type", "waiting", "workers", "restrictions"))
    for row in rows:
        is_unserved = row.worker_count == 0 and row.waiting > 0
        workers = Text("-" if row.worker_count is None else str(row.worker_count), style="red" if is_unserved else "")
        restrictions = Text(row.restrictions, style="yellow")
        grid.add_row(Text(printable(row.task_type)), Text(str(row.waiting)), workers, restrictions)
    return grid


def _workers(view: View, rows: list[WorkerInfo], now: datetime) -> Grid:
    # The column is left out when it is empty, because a screen is narrow.
    has_blocked = any(map(is_blocked, rows))
    blocked_title = ("blocked from",) if has_blocked else ()
    grid = _grid(view, "workers", ("worker", "status", "held", "slots", "heartbeat", *blocked_title, "types", "host"))
    for worker in rows:
        beat_at = worker.last_heartbeat_at
        cells = [
            Text(printable(worker.worker_id)),
            Text(worker.status, style=STYLES.get(worker.status, "")),
            Text(str(worker.held)),
            Text(str(worker.capacity)),
            Text(f"{_time(max((now - beat_at).total_seconds(), 0))} ago" if beat_at else "-"),
            *([Text(printable(blocked_types_text(worker)), style="yellow")] if has_blocked else []),
            Text(printable("any" if worker.task_types is None else ", ".join(worker.task_types))),
            Text(printable(worker.host)),
        ]
        grid.add_row(*cells)
    return grid


def _grid(view: View, table: Table, titles: Iterable[str]) -> Grid:
    """A table with its titles; an arrow marks the sorted column, reverse video the table that has the keyboard."""
    sorted_by, _, is_descending = COLUMNS[table][view.sorts[table]]
    arrow = "▼" if is_descending != (view.is_reversed and view.table == table) else "▲"
    style = "bold reverse" if view.table == table else "bold"
    grid = Grid(box=None, pad_edge=False, expand=False, header_style=style)
    for title in titles:
        marked = f"{title.upper()}{arrow}" if title == sorted_by else title.upper()
        is_number = title in ("waiting", "held", "slots") or (table == "types" and title == "workers")
        grid.add_column(marked, no_wrap=True, overflow="ellipsis", justify="right" if is_number else "left")
    return grid


def _last_line(view: View) -> Text:
    if view.question:
        return Text(f"{view.question.capitalize()} the whole queue? y / n", style="bold yellow")
    if view.message:
        return Text(printable(view.message), style="red", no_wrap=True, overflow="ellipsis")
    if view.reading and view.reading.workers is None:
        return Text(f"{KEYS}   (this key may not see workers)", style="bright_black", no_wrap=True)
    return Text(KEYS, style="bright_black", no_wrap=True, overflow="ellipsis")


def _pairs(counts: Mapping[str, int]) -> str:
    return "  ".join(f"{name} {count}" for name, count in counts.items())


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.3g} s"


def now() -> datetime:
    return datetime.now(UTC)
