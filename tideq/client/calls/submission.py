"""Calls to submit tasks, one or many, as part of the current trace."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from tideq.client.calls.base import Call, answers, then
from tideq.client.encoding import encode, encode_each
from tideq.client.errors import FieldProblem, InvalidRequest
from tideq.client.models.tasks import NewTask, Submitted

TASKS = "/api/v1/tasks"
MAX_BATCH = 1_000
MAX_BATCH_BYTES = 15 * 1024 * 1024
"""A little below the service's limit for a body."""


class SubmittedBatch(msgspec.Struct, frozen=True):
    tasks: tuple[Submitted, ...]


_read_submitted = answers(Submitted)
_read_batch = then(answers(SubmittedBatch), lambda reply: reply.tasks)


class Batch(NamedTuple):
    first: int
    """Index of the first part among all parts."""
    bodies: list[bytes]


def submit(task: NewTask, trace: Mapping[str, str]) -> Call[Submitted]:
    # The response may wait for a replica, a disk or history.
    return submit_encoded(encode(task), trace, 0.0 if task.durability == "store" else 10.0)


def submit_encoded(body: bytes, trace: Mapping[str, str], waits_seconds: float = 0.0) -> Call[Submitted]:
    """Repeatable: the header has a new key. A key in the body takes precedence."""
    return Call(
        method="POST",
        path=TASKS,
        read=_read_submitted,
        body=body,
        headers={**trace, "Idempotency-Key": f'"{new_key()}"'},
        waits_seconds=waits_seconds,
    )


def submit_batch(batch: Batch, key: str, trace: Mapping[str, str]) -> Call[tuple[Submitted, ...]]:
    return Call(
        method="POST",
        path=f"{TASKS}/batch",
        read=_read_batch,
        body=b'{"tasks":[%b]}' % b",".join(batch.bodies),
        headers={**trace, **key_header(f"{key}.{batch.first}")},
        waits_seconds=30.0,
    )


def submit_together(bodies: list[bytes], trace: Mapping[str, str]) -> Call[tuple[Submitted, ...]]:
    """Submits tasks of separate callers, with queue positions in the response. Repeatable by its key."""
    return Call(
        method="POST",
        path=f"{TASKS}/batch",
        read=_read_batch,
        body=b'{"include_positions":true,"tasks":[%b]}' % b",".join(bodies),
        headers={**trace, **key_header(new_key())},
    )


def batches(tasks: Iterable[NewTask]) -> Iterator[Batch]:
    return cut(encode_each(tasks))


def cut(parts: Iterable[bytes]) -> Iterator[Batch]:
    """Cuts parts into as few batches as count and size allow; equal parts always yield equal batches."""
    first, bodies, size = 0, list[bytes](), 0
    for body in parts:
        if bodies and (len(bodies) == MAX_BATCH or size + len(body) > MAX_BATCH_BYTES):
            yield Batch(first, bodies)
            first, bodies, size = first + len(bodies), [], 0
        bodies.append(body)
        size += len(body) + 1
    if bodies:
        yield Batch(first, bodies)


def new_key() -> str:
    """As random as a UUID, at a third of its cost."""
    return os.urandom(16).hex()


def key_header(key: str) -> dict[str, str]:
    """Raises ValueError for characters that a quoted header value cannot contain."""
    if not (key.isascii() and key.isprintable()) or '"' in key or "\\" in key:
        raise ValueError(f"{key!r} cannot be an idempotency key of a batch: printable ASCII without quotes")
    return {"Idempotency-Key": f'"{key}"'}


def shift_pointers(error: InvalidRequest, first: int) -> None:
    """Shifts the pointers of the error from the batch's numbering to the caller's."""
    error.fields = tuple(FieldProblem(_shifted(field.pointer, first), field.detail) for field in error.fields)


def _shifted(pointer: str, first: int) -> str:
    root, *rest = pointer.removeprefix("/").split("/")
    if root != "tasks" or not rest or not rest[0].isdecimal():
        return pointer
    return "/".join(("", root, str(int(rest[0]) + first), *rest[1:]))


def trace_headers() -> dict[str, str]:
    """Returns `traceparent` and related headers; empty where OpenTelemetry was never imported."""
    carrier: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.context import get_current

        if get_current():  # otherwise every propagator would run for nothing
            from opentelemetry.propagate import inject

            inject(carrier)
    return carrier
