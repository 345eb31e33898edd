"""One line for every transition: which task, of which trace, by which worker, from where to where, and why.

JSON, or for people where they look at a terminal. Neither can be broken by what it tells: names that carry control
characters are escaped, and payloads, results and errors' messages are not in it.
"""

import functools
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from tideq.queue_core.states import Reason
from tideq.workers.monitor.journal.alike import MAX_KNOWN
from tideq.workers.monitor.journal.transition import Looks, Transition


class TransitionLines:
    wants_origins = True

    def __init__(self, write: Callable[[str], None], *, for_people: bool) -> None:
        self._write = write
        self._line = _words if for_people else _document

    def hear(self, transitions: Sequence[Transition]) -> None:
        self._write("".join(map(self._line, transitions)))


def _document(each: Transition) -> str:
    """By hand, and of what many lines share once: the rest is words of ours, hexadecimal digits and numbers."""
    shared = _shared(each.looks, each.attempt, each.source, each.origin.client_id)
    return (
        f'{{"event": "transition", "task_id": "{each.task_id}", "trace_id": "{each.trace_id}", '
        f'"span_id": "{each.span_id}", {shared}, "retry_count": {each.retry_count}, '
        f'"age_seconds": {each.age_ms / 1000}, "level": "info", "timestamp": "{_instant(each.at_ms)}"}}\n'
    )


@functools.lru_cache(maxsize=MAX_KNOWN)
def _shared(looks: Looks, attempt: int, source: str, client_id: str) -> str:
    task_type, priority, state, reason, _, worker, _ = looks
    return (
        f'"task_type": {json.dumps(task_type)}, "priority": {json.dumps(priority)}, '
        f'"client_id": {json.dumps(client_id)}, "worker_id": {json.dumps(worker.decode())}, "attempt": {attempt}, '
        f'"from_state": "{source}", "to_state": "{state.decode()}", "reason": "{reason.decode() or Reason.SUBMITTED}"'
    )


def _words(each: Transition) -> str:
    return (
        f"{_instant(each.at_ms)} {each.task_id} {each.source or '·':>11} → {each.state:<11} {each.reason:<17} "
        f"{_shown(each.task_type)} attempt={each.attempt} retries={each.retry_count} age={each.age_ms / 1000:.1f}s "
        f"client={_shown(each.origin.client_id) or '-'} worker={_shown(each.worker_id) or '-'} trace={each.trace_id}\n"
    )


def _shown(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


@functools.lru_cache(maxsize=10_000)
def _instant(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
