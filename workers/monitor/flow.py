"""The flow meter: hears every transition of the journal and counts them, with how long tasks were in which state.

Counted where they are heard: over several monitors the numbers add up. What a journal missed is missing here too.
"""

from collections.abc import Iterable, Sequence
from itertools import product

from tideq.queue_core.metrics import LONG_SECONDS
from tideq.queue_core.readings import Counters, Distribution, Labels, TypeNames
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.telemetry import SPAN_ASSIGNED, SPAN_EXECUTING, SPAN_LIFECYCLE, SPAN_QUEUED
from tideq.workers.monitor.journal.transition import Phase, Transition

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
"""Fewer than elsewhere: each has a distribution of its own, for every way an execution can end."""
NEW = "new"
"""Where a submitted task comes from, told as a word: an empty label is none."""


class FlowMeter:
    wants_origins = False

    def __init__(self, counters: Counters, priorities: Iterable[str] = ()) -> None:
        self._counters = counters
        # The first fifty deaths of a kind, between two scrapes, would never have risen to anybody.
        counters.declare("tideq_task_dead_letters_total", *product(DEATHS, priorities))
        self._types = TypeNames(MAX_TASK_TYPES)
        self._known: dict[Labels, Distribution] = {}

    def hear(self, transitions: Sequence[Transition]) -> None:
        for each in transitions:
            self._count(each)

    def _count(self, each: Transition) -> None:
        reason, target, priority = each.reason, each.state, each.priority
        self._counters.add("tideq_transitions_total", each.source or NEW, target, reason)
        for phase in each.phases:
            self._note(phase, each, priority)
        if reason in FAILURES:
            self._counters.add("tideq_task_failures_total", reason, priority)
        if target is TaskState.DEAD_LETTER and reason is not Reason.PURGED:
            self._counters.add("tideq_task_dead_letters_total", reason, priority)
        if target is TaskState.QUEUED and reason in RETRIES:
            self._counters.add("tideq_task_retries_total", _attempt(each.attempt), priority)

    def _note(self, phase: Phase, each: Transition, priority: str) -> None:
        if phase.name == SPAN_LIFECYCLE:
            self._distribution("tideq_task_duration_seconds", priority, each.state).note(phase.seconds)
        elif state := STATE_OF.get(phase.name):
            self._distribution("tideq_task_state_duration_seconds", state, priority).note(phase.seconds)
        if phase.name == SPAN_EXECUTING:
            labels = self._types.label(each.task_type), each.reason
            self._distribution("tideq_task_execution_duration_seconds", *labels).note(phase.seconds)

    def _distribution(self, metric: str, *labels: str) -> Distribution:
        key = (metric, *labels)
        if key not in self._known:
            self._known[key] = self._counters.distribution(metric, labels, LONG_SECONDS)
        return self._known[key]


def _attempt(number: int) -> str:
    return str(number) if number < MAX_ATTEMPT else f"{MAX_ATTEMPT}+"
