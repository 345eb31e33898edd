"""Writes a line for every transition: task, trace, worker, states and reason.

JSON, or readable text on a terminal. Names are escaped, and payloads, results and error messages are left out, so that
no task can break or forge a line.
"""

import functools
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from tideq.queue_core.states import Reason
from tideq.workers.monitor.journal.memo import MAX_ENTRIES
from tideq.workers.monitor.journal.transition import ObservedTransition, StepKey


class TransitionLog:
    wants_origins = True

    def __init__(self, write: Callable[[str], None], *, readable: bool) -> None:
        self._write = write
        self._line = _readable if readable else _document

    def observe(self, transitions: Sequence[ObservedTransition]) -> None:
        self._write("".join(map(self._line, transitions)))


def _document(each: ObservedTransition) -> str:
    """Formats JSON by hand, for speed: only `_shared` holds text that needs escaping."""
    shared = _shared(each.step_key, each.attempt, each.source, each.origin.client_id)
    return (
        f'{{"event": "transition", "task_id": "{each.task_id}", "trace_id": "{each.trace_id}", '
        f'"span_id": "{each.span_id}", {shared}, "retry_count": {each.retry_count}, '
        f'"age_seconds": {each.age_ms / 1000}, "level": "info", "timestamp": "{_instant(each.at_ms)}"}}\n'
    )


@functools.lru_cache(maxsize=MAX_ENTRIES)
def _shared(key: StepKey, attempt: int, source: str, client_id: str) -> str:
    task_type, priority, state, reason, _, worker, _ = key
    return (
        f'"task_type": {json.dumps(task_type)}, "priority": {json.dumps(priority)}, '
        f'"client_id": {json.dumps(client_id)}, "worker_id": {json.dumps(worker.decode())}, "attempt": {attempt}, '
        f'"from_state": "{source}", "to_state": "{state.decode()}", "reason": "{reason.decode() or Reason.SUBMITTED}"'
    )


def _readable(each: ObservedTransition) -> str:
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
