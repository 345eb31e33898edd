"""Counts transitions and measures how long tasks stayed in each state, from the journal.

Each monitor counts the transitions it publishes, so numbers of several monitors add up. Transitions that the journal
missed are missing here too.
"""

from collections.abc import Iterable, Sequence
from itertools import product

from tideq.queue_core.samples import Counters, Labels, SampleHistogram, TypeNames
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.telemetry.metrics import LONG_SECONDS
from tideq.queue_core.telemetry.names import SPAN_ASSIGNED, SPAN_EXECUTING, SPAN_LIFECYCLE, SPAN_QUEUED
from tideq.workers.monitor.journal.transition import ObservedTransition, Phase

STATE_OF = {SPAN_QUEUED: "queued", SPAN_ASSIGNED: "assigned", SPAN_EXECUTING: "executing"}
FAILURES = {
    Reason.ERROR,
    Reason.NOT_RETRIABLE,
    Reason.RETRIES_EXHAUSTED,
    Reason.TIMED_OUT,
    Reason.WORKER_LOST,
    Reason.POISON,
    Reason.DISCARDED,
}
DEATHS = (Reason.RETRIES_EXHAUSTED, Reason.POISON, Reason.NEVER_STARTED, Reason.DISCARDED)
RETRIES = {Reason.ERROR, Reason.TIMED_OUT, Reason.WORKER_LOST}
MAX_ATTEMPT = 10
MAX_TASK_TYPES = 50
"""Fewer than elsewhere: each type has one histogram for every reason an execution ends with."""
NEW = "new"
"""The source label of a new task; Prometheus treats an empty label as absent."""


class TaskMetrics:
    wants_origins = False

    def __init__(self, counters: Counters, priorities: Iterable[str] = ()) -> None:
        self._counters = counters
        # Without a zero first, the deaths before the first scrape would be no increase to an alert.
        counters.declare("tideq_task_dead_letters_total", *product(DEATHS, priorities))
        self._types = TypeNames(MAX_TASK_TYPES)
        self._histograms: dict[Labels, SampleHistogram] = {}

    def observe(self, transitions: Sequence[ObservedTransition]) -> None:
        for each in transitions:
            self._count(each)

    def _count(self, each: ObservedTransition) -> None:
        reason, target, priority = each.reason, each.state, each.priority
        self._counters.add("tideq_transitions_total", each.source or NEW, target, reason)
        for phase in each.phases:
            self._observe_phase(phase, each, priority)
        if reason in FAILURES:
            self._counters.add("tideq_task_failures_total", reason, priority)
        if target is TaskState.DEAD_LETTER and reason is not Reason.PURGED:
            self._counters.add("tideq_task_dead_letters_total", reason, priority)
        if target is TaskState.QUEUED and reason in RETRIES:
            self._counters.add("tideq_task_retries_total", _attempt(each.attempt), priority)

    def _observe_phase(self, phase: Phase, each: ObservedTransition, priority: str) -> None:
        if phase.name == SPAN_LIFECYCLE:
            self._histogram("tideq_task_duration_seconds", priority, each.state).note(phase.seconds)
        elif state := STATE_OF.get(phase.name):
            self._histogram("tideq_task_state_duration_seconds", state, priority).note(phase.seconds)
        if phase.name == SPAN_EXECUTING:
            labels = self._types.label(each.task_type), each.reason
            self._histogram("tideq_task_execution_duration_seconds", *labels).note(phase.seconds)

    def _histogram(self, metric: str, *labels: str) -> SampleHistogram:
        key = (metric, *labels)
        if key not in self._histograms:
            self._histograms[key] = self._counters.histogram(metric, labels, LONG_SECONDS)
        return self._histograms[key]


def _attempt(number: int) -> str:
    return str(number) if number < MAX_ATTEMPT else f"{MAX_ATTEMPT}+"
