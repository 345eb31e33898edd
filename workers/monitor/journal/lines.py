"""One line for every transition: which task, of which trace, by which worker, from where to where, and why.

JSON, or for people where they look at a terminal. Neither can be broken by what it tells: names that carry control
characters are escaped, and payloads, results and errors' messages are not in it.
"""

import functools
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from tideq.workers.monitor.journal.transition import Transition


class TransitionLines:
    wants_traces = True

    def __init__(self, write: Callable[[str], None], *, for_people: bool) -> None:
        self._write = write
        self._line = _words if for_people else _document

    def hear(self, transitions: Sequence[Transition]) -> None:
        self._write("".join(map(self._line, transitions)))


def _document(each: Transition) -> str:
    """By hand, 2 µs a line instead of 9: all but the names is words of ours, hexadecimal digits and numbers."""
    return (
        f'{{"event": "transition", "task_id": "{each.task_id}", "trace_id": "{_trace_id(each)}", '
        f'"task_type": {_quoted(each.task_type)}, "priority": {_quoted(each.priority)}, '
        f'"worker_id": {_quoted(each.worker_id)}, "attempt": {each.attempt}, "from": "{each.source}", '
        f'"to": "{each.state}", "reason": "{each.reason}", "level": "info", "timestamp": "{_instant(each.at_ms)}"}}\n'
    )


def _words(each: Transition) -> str:
    return (
        f"{_instant(each.at_ms)} {each.task_id} {each.source or '·':>11} → {each.state:<11} {each.reason:<17} "
        f"{_shown(each.task_type)} attempt={each.attempt} worker={_shown(each.worker_id) or '-'} "
        f"trace={_trace_id(each) or '-'}\n"
    )


@functools.lru_cache(maxsize=10_000)
def _quoted(text: str) -> str:
    """As JSON, in ASCII: what is beyond is escaped, line separators of other alphabets included."""
    return json.dumps(text)


def _shown(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def _trace_id(transition: Transition) -> str:
    """Checked when it was stored."""
    return transition.trace.traceparent[3:35] if transition.trace else ""


@functools.lru_cache(maxsize=10_000)
def _instant(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
