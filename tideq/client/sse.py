"""Parses server-sent events. Pure; chunks may end anywhere, also within a character."""

from typing import NamedTuple


class Message(NamedTuple):
    """The fields between two blank lines. Without data it is no event, but may carry the last id."""

    name: str
    data: str
    last_id: str | None
    retry_ms: int | None

    @property
    def is_event(self) -> bool:
        return bool(self.data)


class SseParser:
    """`feed` takes a chunk and returns the complete messages. One parser for each connection."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: list[tuple[str, str]] = []

    def feed(self, chunk: bytes) -> list[Message]:
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        return [message for line in lines if (message := self._line(line.removesuffix(b"\r").decode())) is not None]

    def _line(self, line: str) -> Message | None:
        if line:
            name, _, value = line.partition(":")
            self._fields.append((name, value.removeprefix(" ")))
            return None
        fields, self._fields = self._fields, []
        return _message(fields) if fields else None


def _message(fields: list[tuple[str, str]]) -> Message:
    """A line that begins with a colon is a comment: its field has no name."""
    last = dict(fields)
    data = "\n".join(value for name, value in fields if name == "data")
    retry = last.get("retry", "")
    return Message(last.get("event", "message"), data, last.get("id"), int(retry) if retry.isdecimal() else None)
