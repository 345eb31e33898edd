"""How answers are shown: tables for people, JSON for programs. Answers go to standard output, all else to the other.

Colours are for terminals, and not where NO_COLOR is set.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TextIO, TypeVar

import msgspec

T = TypeVar("T")
Cell = str | Callable[[Any], str]
"""An attribute, or what makes words of the whole item."""
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
    """Many alike. `columns` are titles and the cells under them; the lines of jsonl come as they are read."""
    if style == "jsonl":
        for item in items:
            print_line(_encode(item).decode())
    elif style == "json":
        print_line(_pretty(list(items)))
    else:
        for line in table([[_text(_value(item, name)) for name in columns.values()] for item in items], list(columns)):
            print_line(line)


def show_one(item: Any, style: Format, fields: Sequence[str] = ()) -> None:
    """One thing: in a table, a line for each of its fields that says something."""
    if style == "table":
        names = fields or [field.name for field in msgspec.structs.fields(item)]
        rows = [[name, _text(value)] for name in names if (value := _value(item, name)) not in (None, "", (), {})]
        for line in table(rows, []):
            print_line(line)
    else:
        print_line(_pretty(item) if style == "json" else _encode(item).decode())


def table(rows: Sequence[Sequence[str]], titles: Sequence[str]) -> list[str]:
    """Columns side by side, none cut off. The widths are those of the texts, without their colours."""
    lines = [[title.upper() for title in titles], *rows] if titles else list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_colourful = has_colours(sys.stdout)
    return [
        "  ".join(_padded(text, width, is_colourful) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def note(line: str) -> None:
    """For people who look on, not part of the answer."""
    sys.stderr.write(f"{printable(line)}\n")
    sys.stderr.flush()


def confirm(question: str) -> bool:
    """Where nobody can be asked, the answer is no."""
    if not sys.stdin.isatty():
        note(f"{question} Say --yes.")
        return False
    note(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def with_progress_bar(items: Sequence[T], title: str) -> Iterable[T]:
    """As they are taken, a bar grows: on a terminal only, and never on standard output."""
    if not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, title, console=Console(stderr=True), transient=True)


def printable(text: str) -> str:
    """What tasks and workers say may hold commands to a terminal, or pretend to be another line."""
    return text if text.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def has_colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _padded(text: str, width: int, is_colourful: bool) -> str:
    space = " " * (width - len(text))
    if is_colourful and text in COLOURS:
        return f"\x1b[{COLOURS[text]}m{text}\x1b[0m{space}"
    return text + space


def _value(item: Any, name: Cell) -> Any:
    """`queue.total_depth` is an attribute of an attribute, none of which need be there."""
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
