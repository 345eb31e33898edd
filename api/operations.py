"""What every route says about itself: who may call it, what goes in, what comes out, what it may refuse.

A route without such a declaration is refused at start. The rest of its description is read off the handler: the summary
and description from its docstring, the status from its decorator, parameters from its signature, the tag from its
module. What every closed route, every body and every use of the store may be refused for goes without saying.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar.handlers import BaseRouteHandler

from tideq.queue_core import errors
from tideq.queue_core.outbox.event_cursor import CURSOR_FORM

PUBLIC = "public"
JSON = "application/json"

ADMISSION: tuple[type[Exception], ...] = (
    errors.PayloadTooLarge,
    errors.InvalidTask,
    errors.UnknownPriority,
    errors.RankOutOfRange,
    errors.IdempotencyConflict,
    errors.TooManyNewLanes,
    errors.TooManySubmissions,
    errors.BatchAboveBurst,
    errors.KeyPending,
    errors.QueueFull,
    errors.LanesExhausted,
    errors.OutboxFull,
    errors.StoreFull,
    errors.DurabilityUnavailable,
    errors.DurabilityNotReached,
)
"""Every reason for which a submission is not taken."""


class HeaderDoc(msgspec.Struct, frozen=True):
    """A header a request may carry, or an answer carries."""

    name: str
    description: str
    example: str
    schema: Mapping[str, Any] = {}


class Link(msgspec.Struct, frozen=True):
    """Where an answer leads: an operation, and what of the answer goes into it."""

    operation: str
    parameters: Mapping[str, str] = {}
    body: Mapping[str, str] = {}


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    roles: frozenset[str]
    answer: tuple[Any, ...]
    body: Any
    needs_body: bool
    refusals: tuple[type[Exception], ...]
    headers: tuple[HeaderDoc, ...]
    answer_headers: tuple[HeaderDoc, ...]
    links: tuple[Link, ...]
    examples: Mapping[str, Mapping[str, Any]]
    media_type: str
    is_frequent: bool


def operation(
    *roles: str,
    answer: Any,
    body: Any = None,
    needs_body: bool = True,
    refuses: tuple[type[Exception], ...] = (),
    headers: tuple[HeaderDoc, ...] = (),
    answer_headers: tuple[HeaderDoc, ...] = (),
    links: tuple[Link, ...] = (),
    examples: Mapping[str, Mapping[str, Any]] | None = None,
    media_type: str = JSON,
    is_frequent: bool = False,
) -> dict[str, Any]:
    """A handler's `opt`. An admin may do everything a key can, so naming no role is for admins alone.

    `answer` is an Answer, or a tuple of those it may be, or None where it is no document of ours; `refuses` are the
    errors the handler's verb raises; `examples` of the body, by name, where one made of its fields' examples tells too
    little. `is_frequent` is for calls made for every task, which `express.py` answers: each a POST whose path has no
    parameter, or a worker's id.
    """
    operation_of_handler = Operation(
        roles=frozenset(roles) if PUBLIC in roles else frozenset((*roles, "admin")),
        answer=answer if isinstance(answer, tuple) else (answer,),  # pyright: ignore[reportUnknownArgumentType]
        body=body,
        needs_body=needs_body,
        refusals=refuses,
        headers=headers,
        answer_headers=answer_headers,
        links=links,
        examples=examples or {},
        media_type=media_type,
        is_frequent=is_frequent,
    )
    return {"operation": operation_of_handler}


def operation_of_handler(handler: BaseRouteHandler) -> Operation:
    found = handler.opt.get("operation")
    if not isinstance(found, Operation):
        raise TypeError(f"{handler} names no roles and describes nothing: add opt=call(…) to it")
    return found


def link_to(*operations: str, body: Mapping[str, str] | None = None, **parameters: str) -> tuple[Link, ...]:
    """Links to operations by their ids. A value is a JSON Pointer into the answer, or an expression of OpenAPI's."""
    return tuple(Link(operation, parameters, body or {}) for operation in operations)


IDEMPOTENCY_KEY = HeaderDoc(
    "Idempotency-Key",
    "A structured-field string, quoted; the bare form is taken too. The body's own key goes before it.",
    '"order-1042"',
    {"minLength": 1, "maxLength": 255},
)
MAX_BATCH_KEY_LENGTH = 250
"""Each task's place in the batch is added to it, and what comes out must be a key too."""
BATCH_KEY = HeaderDoc(
    "Idempotency-Key",
    "Stands for the whole batch; tasks that have a key of their own keep it.",
    '"import-7"',
    {"minLength": 1, "maxLength": MAX_BATCH_KEY_LENGTH},
)
TRACEPARENT = HeaderDoc(
    "traceparent",
    "W3C Trace Context, handed on to the worker; ignored where it is not one.",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
)
TRACESTATE = HeaderDoc("tracestate", "Handed on with `traceparent`.", "vendor=00f067aa0ba902b7")
BAGGAGE = HeaderDoc("baggage", "Handed on with `traceparent`.", "tenant=c-118")
TRACE = (TRACEPARENT, TRACESTATE, BAGGAGE)
EVENT_ID = {"pattern": f"^({CURSOR_FORM})?$"}
"""Empty is none."""
LAST_EVENT_ID = HeaderDoc(
    "Last-Event-ID", "Go on after this event, where it is still kept.", "1772442900250-0-1", EVENT_ID
)
RATE_LIMIT = (
    HeaderDoc(
        "RateLimit-Policy", "Where clients are limited: how many at once, filled in how long.", '"client";q=9;w=60'
    ),
    HeaderDoc("RateLimit", "How many are left, and in how many seconds all are.", '"client";r=8;t=7'),
)
LOCATION = HeaderDoc("Location", "Where to read it.", "/api/v1/tasks/0195546e-3c7a-7d21-9f04-00a1b2c3d4e5")
