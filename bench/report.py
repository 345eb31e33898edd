"""Prints the findings as tables on standard output, and writes them as JSON."""

import platform
from collections.abc import Mapping
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table as RichTable

from bench.figures import Figure, Findings, Table, Target


def show(console: Console, findings: Mapping[str, Findings]) -> None:
    for found in findings.values():
        for table in found.tables:
            console.print(_table(table), "")
    if targets := [target for found in findings.values() for target in found.targets]:
        console.print(_targets(targets))


def write_json(path: Path, store: str, findings: Mapping[str, Findings]) -> None:
    document = {
        "store": store,
        "machine": platform.machine(),
        "targets": [_target(target) for found in findings.values() for target in found.targets],
        "benches": {name: [_document(table) for table in found.tables] for name, found in findings.items()},
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document)))


def _table(table: Table) -> RichTable:
    drawn = RichTable(title=table.title, caption=table.note or None, title_justify="left", caption_justify="left")
    for column in table.columns:
        drawn.add_column(column, justify="right" if column != table.columns[0] else "left")
    for row in table.rows:
        drawn.add_row(*map(str, row))
    return drawn


def _targets(targets: list[Target]) -> RichTable:
    drawn = RichTable(title="Targets", title_justify="left")
    for column in ("to reach", "at most", "measured", ""):
        drawn.add_column(column)
    for target in targets:
        digits = 2 if target.unit == "×" else 1
        drawn.add_row(
            target.name,
            f"{target.limit:g} {target.unit}",
            f"{target.measured:.{digits}f} {target.unit}",
            "reached" if target.is_reached else "missed",
        )
    return drawn


def _target(target: Target) -> dict[str, object]:
    return {**msgspec.structs.asdict(target), "is_reached": target.is_reached}


def _document(table: Table) -> dict[str, object]:
    rows = [dict(zip(table.columns, map(_cell, row), strict=True)) for row in table.rows]
    return {"title": table.title, "rows": rows}


def _cell(value: str | Figure) -> object:
    if isinstance(value, str):
        return value
    return {"median": value.median, "spread": value.spread, "samples": value.samples}
