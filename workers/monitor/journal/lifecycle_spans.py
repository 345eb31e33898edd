"""Spans of a task's life, recorded from its transitions with the store's timestamps.

A task whose trace is not sampled costs one check of its flag. Phases and the whole life are children of the span that
submitted the task, which exists already: a trace is complete at every moment, also while its task waits for days.
"""

from collections.abc import Sequence

from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.telemetry import names as telemetry
from tideq.queue_core.telemetry.spans import INTERNAL, Attributes, Span, SpanError, Tracing
from tideq.queue_core.telemetry.trace_context import (
    TraceParent,
    execution_span_id,
    lifecycle_span_id,
    phase_span_id,
    requeue_span_id,
    sampled_parent,
)
from tideq.workers.monitor.journal.transition import ObservedTransition

NS = 1_000_000
ALWAYS_RECORDED = (telemetry.SPAN_EXECUTING, telemetry.SPAN_LIFECYCLE)
"""Recorded also where they are short: the parent of the worker's spans, and the span with the final state."""
UNSUCCESSFUL = (TaskState.FAILED, TaskState.DEAD_LETTER)
NOT_THE_TASKS_FAULT = (Reason.SUCCEEDED, Reason.RELEASED, Reason.CANCELLED, Reason.CLAIMED, Reason.STARTED)
MAX_MESSAGE_CHARACTERS = 1_000


class LifecycleSpans:
    wants_origins = True

    def __init__(self, tracing: Tracing, queue_name: str) -> None:
        self._tracing = tracing
        self._queue_name = queue_name

    def observe(self, transitions: Sequence[ObservedTransition]) -> None:
        for each in transitions:
            if each.trace is not None and (sender := sampled_parent(each.trace.traceparent)):
                self._record(each, sender, each.trace.tracestate)

    def _record(self, transition: ObservedTransition, sender: TraceParent, tracestate: str) -> None:
        phases = transition.phases
        if not phases:
            return
        if not self._tracing.has_room:
            self._tracing.miss(len(phases))
            return
        attributes, error = self._attributes(transition), _error(transition)
        # The sender's span began within that millisecond: no child may begin before it.
        least_ns = (transition.created_ms + 1) * NS - 1
        for name, began_ms, ended_ms in phases:
            if began_ms == ended_ms and name not in ALWAYS_RECORDED:
                continue
            is_life = name == telemetry.SPAN_LIFECYCLE
            span = Span(
                name,
                INTERNAL,
                sender.child(_span_id(transition, name)),
                sender.span_id,
                max(began_ms * NS, least_ns),
                ended_ms * NS,
                attributes,
                error if error and _has_failed(transition, is_life=is_life) else None,
                tracestate,
                _links(transition, sender) if is_life else (),
            )
            self._tracing.record(span)

    def _attributes(self, transition: ObservedTransition) -> Attributes:
        attributes: dict[str, str | int] = {
            telemetry.MESSAGING_SYSTEM: telemetry.SYSTEM,
            telemetry.MESSAGING_DESTINATION: self._queue_name,
            telemetry.MESSAGING_MESSAGE_ID: transition.task_id,
            telemetry.TASK_TYPE: transition.task_type,
            telemetry.TASK_PRIORITY: transition.priority,
            telemetry.TASK_ATTEMPT: transition.attempt,
            telemetry.TASK_STATE: str(transition.state),
            telemetry.TASK_REASON: str(transition.reason),
        }
        if transition.worker_id:
            attributes[telemetry.MESSAGING_CLIENT_ID] = transition.worker_id
        return attributes


def _links(transition: ObservedTransition, sender: TraceParent) -> tuple[TraceParent, ...]:
    """A link to the span of the retry or replay that began this life, if one was recorded."""
    if not transition.has_requeue_span:
        return ()
    return (sender.child(requeue_span_id(transition.task_id, transition.life)),)


def _span_id(transition: ObservedTransition, name: str) -> str:
    if name == telemetry.SPAN_LIFECYCLE:
        return lifecycle_span_id(transition.task_id, transition.life)
    if name == telemetry.SPAN_EXECUTING:
        return execution_span_id(transition.task_id, transition.attempt)
    return phase_span_id(transition.task_id, transition.version, name)


def _has_failed(transition: ObservedTransition, *, is_life: bool) -> bool:
    """A life fails when its task does; an attempt fails also where a retry follows."""
    return transition.state in UNSUCCESSFUL if is_life else transition.reason not in NOT_THE_TASKS_FAULT


def _error(transition: ObservedTransition) -> SpanError | None:
    if transition.reason in NOT_THE_TASKS_FAULT:
        return None
    error = transition.error
    kind = error.code if error and error.code else str(transition.reason)
    return SpanError(kind[:100], (error.message if error else "")[:MAX_MESSAGE_CHARACTERS] or str(transition.reason))
