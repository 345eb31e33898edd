"""Spans of a task's life, told from its transitions: what each ended, timed by the store's own clock.

A task whose trace is not sampled is skipped after one look at its flag. Phases and the life itself hang under the span
that sent the task, which has been there all along: a tree is whole at every moment, also while its task waits for days.
"""

import functools
from collections.abc import Sequence

from tideq.queue_core import telemetry
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.trace_context import (
    TraceParent,
    execution_span_id,
    is_sampled,
    lifecycle_span_id,
    parse_traceparent,
    phase_span_id,
    revival_span_id,
)
from tideq.queue_core.tracing import INTERNAL, Attributes, Shape, Span, SpanError, Tracing
from tideq.workers.monitor.journal.alike import Alike
from tideq.workers.monitor.journal.transition import Transition

NS = 1_000_000
LEAST_NS = 1_000
"""A span of no length is taken for a broken one."""
ALWAYS_TOLD = (telemetry.SPAN_EXECUTING, telemetry.SPAN_LIFECYCLE)
"""However short: what the worker did hangs under the one, and the other says how it ended."""
UNSUCCESSFUL = (TaskState.FAILED, TaskState.DEAD_LETTER)
NOT_THE_TASKS_FAULT = (Reason.SUCCEEDED, Reason.RELEASED, Reason.CANCELLED, Reason.CLAIMED, Reason.STARTED)
MAX_MESSAGE_CHARACTERS = 1_000

known_sender = functools.lru_cache(maxsize=4_096)(parse_traceparent)
"""A batch's tasks share one, and each comes back with every step of its task."""


class Shapes(dict[str, Shape]):
    """By name, of the phases that transitions of the same looks end."""

    def __init__(self, attributes: Attributes) -> None:
        super().__init__()
        self._attributes = attributes

    def __missing__(self, name: str) -> Shape:
        shape = self[name] = Shape(name, INTERNAL, self._attributes)
        return shape


class LifeSpans:
    wants_origins = True

    def __init__(self, tracing: Tracing, queue_name: str) -> None:
        self._tracing = tracing
        self._queue_name = queue_name
        self._shapes = Alike(lambda transition: Shapes(self._attributes(transition)))

    def hear(self, transitions: Sequence[Transition]) -> None:
        for each in transitions:
            if each.trace is not None and is_sampled(each.trace.traceparent):
                self._tell(each, each.trace.traceparent, each.trace.tracestate)

    def _tell(self, transition: Transition, traceparent: str, tracestate: str) -> None:
        phases = transition.phases
        if not self._tracing.has_room:
            self._tracing.miss(len(phases))
            return
        if not phases or (sender := known_sender(traceparent)) is None:
            return
        task_id = transition.task_id
        shapes, error = self._shapes(transition), _error(transition)
        own = {telemetry.MESSAGING_MESSAGE_ID: task_id}
        # The sender's span began within that millisecond: nothing is to begin before it.
        least_ns = (transition.created_ms + 1) * NS - 1
        for name, began_ms, ended_ms in phases:
            if began_ms == ended_ms and name not in ALWAYS_TOLD:
                continue
            is_life, began_ns = name == telemetry.SPAN_LIFECYCLE, max(began_ms * NS, least_ns)
            span = Span(
                shapes[name],
                sender.child(_span_id(transition, name)),
                sender.span_id,
                began_ns,
                max(ended_ms * NS, began_ns + LEAST_NS),
                own,
                error if error and _has_failed(transition, is_life=is_life) else None,
                tracestate,
                _links(transition, sender) if is_life else (),
            )
            self._tracing.record(span)

    def _attributes(self, transition: Transition) -> Attributes:
        known = {
            telemetry.MESSAGING_SYSTEM: telemetry.SYSTEM,
            telemetry.MESSAGING_DESTINATION: self._queue_name,
            telemetry.TASK_TYPE: transition.task_type,
            telemetry.TASK_PRIORITY: transition.priority,
            telemetry.TASK_ATTEMPT: transition.attempt,
            telemetry.TASK_STATE: str(transition.state),
            telemetry.TASK_REASON: str(transition.reason),
        }
        return {**known, telemetry.MESSAGING_CLIENT_ID: transition.worker_id} if transition.worker_id else known


def _links(transition: Transition, sender: TraceParent) -> tuple[TraceParent, ...]:
    """To the retry or replay that began it, which in turn names the request that asked for it, where that was told."""
    if not transition.is_order_told:
        return ()
    return (sender.child(revival_span_id(transition.task_id, transition.life)),)


def _span_id(transition: Transition, name: str) -> str:
    if name == telemetry.SPAN_LIFECYCLE:
        return lifecycle_span_id(transition.task_id, transition.life)
    if name == telemetry.SPAN_EXECUTING:
        return execution_span_id(transition.task_id, transition.attempt)
    return phase_span_id(transition.task_id, transition.version, name)


def _has_failed(transition: Transition, *, is_life: bool) -> bool:
    """A life fails when its task does; an attempt also when it will be tried again."""
    return transition.state in UNSUCCESSFUL if is_life else transition.reason not in NOT_THE_TASKS_FAULT


def _error(transition: Transition) -> SpanError | None:
    if transition.reason in NOT_THE_TASKS_FAULT:
        return None
    told = transition.error
    kind = told.code if told and told.code else str(transition.reason)
    return SpanError(kind[:100], (told.message if told else "")[:MAX_MESSAGE_CHARACTERS] or str(transition.reason))
