"""Spans of a task's life, told from its transitions: what each ended, timed by the store's own clock.

A task whose trace is not sampled is skipped after one look at its flag. Phases hang under the life they belong to,
which is told when it ends: a tree is whole once its task is finished.
"""

from collections.abc import Sequence

from tideq.queue_core import telemetry
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.trace_context import (
    execution_span_id,
    is_sampled,
    lifecycle_span_id,
    parse_traceparent,
    phase_span_id,
)
from tideq.queue_core.tracing import INTERNAL, Attributes, Span, SpanError, Tracing
from tideq.workers.monitor.journal.transition import Phase, Transition

NS = 1_000_000
UNSUCCESSFUL = (TaskState.FAILED, TaskState.DEAD_LETTER)
NOT_THE_TASKS_FAULT = (Reason.SUCCEEDED, Reason.RELEASED, Reason.CANCELLED, Reason.CLAIMED, Reason.STARTED)
MAX_MESSAGE_CHARACTERS = 1_000


class LifeSpans:
    wants_traces = True

    def __init__(self, tracing: Tracing, queue_name: str) -> None:
        self._tracing = tracing
        self._queue_name = queue_name

    def hear(self, transitions: Sequence[Transition]) -> None:
        for each in transitions:
            if each.trace is not None and is_sampled(each.trace.traceparent):
                self._tell(each, each.trace.traceparent, each.trace.tracestate)

    def _tell(self, transition: Transition, traceparent: str, tracestate: str) -> None:
        phases = transition.phases
        if not self._tracing.has_room:
            self._tracing.miss(len(phases))
            return
        sender = parse_traceparent(traceparent)
        if sender is None or not phases:
            return
        life = lifecycle_span_id(transition.task_id, transition.life)
        attributes, error = self._attributes(transition), _error(transition)
        for phase in phases:
            is_life = phase.name == telemetry.SPAN_LIFECYCLE
            span = Span(
                name=phase.name,
                kind=INTERNAL,
                context=sender.child(life if is_life else _span_id(transition, phase)),
                parent_id=sender.span_id if is_life else life,
                began_ns=phase.began_ms * NS,
                ended_ns=phase.ended_ms * NS,
                attributes=attributes,
                error=error if _has_failed(transition, is_life=is_life) else None,
                tracestate=tracestate,
            )
            self._tracing.record(span)

    def _attributes(self, transition: Transition) -> Attributes:
        known = {
            telemetry.MESSAGING_SYSTEM: telemetry.SYSTEM,
            telemetry.MESSAGING_DESTINATION: self._queue_name,
            telemetry.MESSAGING_MESSAGE_ID: transition.task_id,
            telemetry.TASK_TYPE: transition.task_type,
            telemetry.TASK_PRIORITY: transition.priority,
            telemetry.TASK_ATTEMPT: transition.attempt,
            telemetry.TASK_STATE: str(transition.state),
            telemetry.TASK_REASON: str(transition.reason),
        }
        return {**known, telemetry.MESSAGING_CLIENT_ID: transition.worker_id} if transition.worker_id else known


def _span_id(transition: Transition, phase: Phase) -> str:
    if phase.name == telemetry.SPAN_EXECUTING:
        return execution_span_id(transition.task_id, transition.attempt)
    return phase_span_id(transition.task_id, transition.version, phase.name)


def _has_failed(transition: Transition, *, is_life: bool) -> bool:
    """A life fails when its task does; an attempt also when it will be tried again."""
    return transition.state in UNSUCCESSFUL if is_life else transition.reason not in NOT_THE_TASKS_FAULT


def _error(transition: Transition) -> SpanError | None:
    if transition.reason in NOT_THE_TASKS_FAULT:
        return None
    told = transition.error
    kind = told.code if told and told.code else str(transition.reason)
    return SpanError(kind[:100], (told.message if told else "")[:MAX_MESSAGE_CHARACTERS] or str(transition.reason))
