"""Trace contexts: reading them, and the span ids that everyone can work out who knows a task.

The spans of a task's life are told after the fact, by the monitor. Their ids derive from the task, so that a handler's
spans hang under the execution they belong to although nobody has told that one yet.
"""

import functools
import hashlib
import re

import msgspec

from tideq.queue_core.telemetry.names import SPAN_EXECUTING, SPAN_LIFECYCLE

TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
SAMPLED = 1
REVIVAL = "revival"


class TraceParent(msgspec.Struct, frozen=True, gc=False):
    trace_id: str
    span_id: str
    flags: int

    @property
    def is_sampled(self) -> bool:
        """The other bits say other things: `03` is sampled too."""
        return bool(self.flags & SAMPLED)

    def child(self, span_id: str) -> "TraceParent":
        return TraceParent(self.trace_id, span_id, self.flags)

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


def is_traceparent(text: str) -> bool:
    return TRACEPARENT.fullmatch(text) is not None


def parse_traceparent(text: str) -> TraceParent | None:
    """None unless it is what W3C Trace Context says it must be."""
    if not is_traceparent(text):
        return None
    _, trace_id, span_id, flags = text.split("-")
    return TraceParent(trace_id, span_id, int(flags, 16))


def is_sampled(traceparent: str) -> bool:
    """Of one that was checked when it was stored."""
    return bool(traceparent) and bool(int(traceparent[-2:], 16) & SAMPLED)


def trace_id_of(task_id: str, traceparent: str | None = None) -> str:
    """Of the trace that the task came with, or else its own: the digits of its id, which no other task has."""
    return traceparent[3:35] if traceparent else task_id.replace("-", "")


def execution_traceparent(traceparent: str, task_id: str, attempt: int) -> str:
    """What a handler is given: its spans belong to this attempt's execution. Not to be told apart from any other."""
    return f"{traceparent[:36]}{execution_span_id(task_id, attempt)}{traceparent[-3:]}"


def execution_span_id(task_id: str, attempt: int) -> str:
    """An attempt that was started keeps its number for ever."""
    return _span_id(f"{task_id}/{attempt}/{SPAN_EXECUTING}")


@functools.lru_cache(maxsize=4_096)
def lifecycle_span_id(task_id: str, eligible_ms: str) -> str:
    """A task that is retried or replayed by hand begins another life, eligible from that instant on.

    Every step of the task asks again, mostly within milliseconds.
    """
    return _span_id(f"{task_id}/{eligible_ms}/{SPAN_LIFECYCLE}")


def revival_span_id(task_id: str, eligible_ms: str) -> str:
    """Of the retry or replay by hand that began the life which is eligible from that instant on."""
    return _span_id(f"{task_id}/{eligible_ms}/{REVIVAL}")


def phase_span_id(task_id: str, version: int, name: str) -> str:
    """Of a phase that ended with this transition: each transition ends at most one of a name."""
    return _span_id(f"{task_id}/{version}/{name}")


def _span_id(text: str) -> str:
    """Eight bytes, not all zero: that would be no span."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest().replace("0" * 16, "0" * 15 + "1")
