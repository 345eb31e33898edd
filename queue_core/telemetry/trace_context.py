"""Parses trace contexts, and derives the span ids of a task's life from the task.

The monitor records the spans of a task's life after the fact. Because their ids are derived, a handler's spans can
refer to the execution span as their parent before it is recorded.
"""

import functools
import hashlib
import re

import msgspec

from tideq.queue_core.telemetry.names import SPAN_EXECUTING, SPAN_LIFECYCLE

TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
SAMPLED = 1
REQUEUE = "revival"
"""Part of hashed span ids: must stay, so that processes of all versions derive the same ids."""


class TraceParent(msgspec.Struct, frozen=True, gc=False):
    trace_id: str
    span_id: str
    flags: int

    @property
    def is_sampled(self) -> bool:
        """Only the sampled bit counts: `03` is sampled too."""
        return bool(self.flags & SAMPLED)

    def child(self, span_id: str) -> "TraceParent":
        return TraceParent(self.trace_id, span_id, self.flags)

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


def is_traceparent(text: str) -> bool:
    return TRACEPARENT.fullmatch(text) is not None


def parse_traceparent(text: str) -> TraceParent | None:
    """Returns None if the text is not valid by W3C Trace Context."""
    if not is_traceparent(text):
        return None
    _, trace_id, span_id, flags = text.split("-")
    return TraceParent(trace_id, span_id, int(flags, 16))


def is_sampled(traceparent: str) -> bool:
    """Whether a stored traceparent, which was validated before, is sampled."""
    return bool(traceparent) and bool(int(traceparent[-2:], 16) & SAMPLED)


def sampled_parent(traceparent: str) -> TraceParent | None:
    """Returns the parent of spans that the service adds to a task's trace; None if there is none or it is unsampled."""
    return parse_traceparent(traceparent) if is_sampled(traceparent) else None


def trace_id_of(task_id: str, traceparent: str | None = None) -> str:
    """Returns the trace id of the submission, or else the digits of the task id, which are unique."""
    return traceparent[3:35] if traceparent else task_id.replace("-", "")


def execution_traceparent(traceparent: str, task_id: str, attempt: int) -> str:
    """Returns the traceparent for a handler: its spans become children of this attempt's execution span."""
    return f"{traceparent[:36]}{execution_span_id(task_id, attempt)}{traceparent[-3:]}"


def execution_span_id(task_id: str, attempt: int) -> str:
    """Unique, because a started attempt never returns its number."""
    return _span_id(f"{task_id}/{attempt}/{SPAN_EXECUTING}")


@functools.lru_cache(maxsize=4_096)
def lifecycle_span_id(task_id: str, eligible_ms: str) -> str:
    """Returns the span id of one life of the task; a requeue starts another life with another `eligible_ms`.

    Cached, because every transition of the task needs it, mostly within milliseconds.
    """
    return _span_id(f"{task_id}/{eligible_ms}/{SPAN_LIFECYCLE}")


def requeue_span_id(task_id: str, eligible_ms: str) -> str:
    """Returns the span id of the requeue that began the life with this `eligible_ms`."""
    return _span_id(f"{task_id}/{eligible_ms}/{REQUEUE}")


def phase_span_id(task_id: str, version: int, name: str) -> str:
    """Returns the span id of the phase that ended with this transition; a transition ends one phase of a name."""
    return _span_id(f"{task_id}/{version}/{name}")


def _span_id(text: str) -> str:
    """Returns eight bytes in hex, never all zero, which is an invalid span id."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest().replace("0" * 16, "0" * 15 + "1")
