"""Prints results on standard output, as tables or JSON, and notes and progress bars on standard error.

Colours are used only on terminals, and not where NO_COLOR is set.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TextIO, TypeVar

import msgspec

T = TypeVar("T")
Cell = str | Callable[[Any], str]
"""The name of an attribute, or a function that returns the text of a cell for the item."""
Format = Literal["table", "json", "jsonl"]
COLOURS = {
    "completed": "32",
    "active": "32",
    "executing": "36",
    "assigned": "36",
    "draining": "33",
    "cancelled": "33",
    "failed": "31",
    "dead_letter": "31",
    "unhealthy": "31",
    "dead": "31",
}

_encode = msgspec.json.Encoder(decimal_format="number").encode


def show(items: Iterable[Any], columns: Mapping[str, Cell], style: Format) -> None:
    """Prints items of one kind. `columns` maps titles to cells; jsonl prints each item as soon as it is read."""
    if style == "jsonl":
        for item in items:
            print_line(_encode(item).decode())
    elif style == "json":
        print_line(_pretty(list(items)))
    else:
        for line in table([[_text(_value(item, name)) for name in columns.values()] for item in items], list(columns)):
            print_line(line)


def show_one(item: Any, style: Format, fields: Sequence[str] = ()) -> None:
    """Prints one item: as a table, with a line for each non-empty field."""
    if style == "table":
        names = fields or [field.name for field in msgspec.structs.fields(item)]
        rows = [[name, _text(value)] for name in names if (value := _value(item, name)) not in (None, "", (), {})]
        for line in table(rows, []):
            print_line(line)
    else:
        print_line(_pretty(item) if style == "json" else _encode(item).decode())


def table(rows: Sequence[Sequence[str]], titles: Sequence[str]) -> list[str]:
    """Aligned lines; no column is cut off. Colour codes do not count as width."""
    lines = [[title.upper() for title in titles], *rows] if titles else list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_coloured = has_colours(sys.stdout)
    return [
        "  ".join(_padded(text, width, is_coloured) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def note(line: str) -> None:
    """Prints to standard error a line that is not part of the result."""
    sys.stderr.write(f"{printable(line)}\n")
    sys.stderr.flush()


def confirm(question: str) -> bool:
    """Reads the answer from the terminal; returns False where standard input is no terminal."""
    if not sys.stdin.isatty():
        note(f"{question} Confirm with --yes.")
        return False
    note(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def with_progress_bar(items: Sequence[T], title: str) -> Iterable[T]:
    """Yields the items and shows a progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, title, console=Console(stderr=True), transient=True)


def printable(text: str) -> str:
    """Escapes control characters: names and errors of tasks and workers may contain terminal commands or line ends."""
    return text if text.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def has_colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _padded(text: str, width: int, is_coloured: bool) -> str:
    space = " " * (width - len(text))
    if is_coloured and text in COLOURS:
        return f"\x1b[{COLOURS[text]}m{text}\x1b[0m{space}"
    return text + space


def _value(item: Any, name: Cell) -> Any:
    """The value of a cell; `queue.total_depth` is a nested attribute, and a missing one gives None."""
    if callable(name):
        return name(item)
    for part in name.split("."):
        item = getattr(item, part, None)
    return item


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (tuple, list)) and all(isinstance(each, str) for each in value):  # pyright: ignore[reportUnknownVariableType]
        return printable(", ".join(value)) or "-"  # pyright: ignore[reportUnknownArgumentType]
    return printable(value if isinstance(value, str) else _encode(value).decode())


def _pretty(value: Any) -> str:
    return msgspec.json.format(_encode(value), indent=2).decode()


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
