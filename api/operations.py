"""The declaration of a route: roles, body, response, errors, headers, links.

A route without one is refused at start. The rest of its OpenAPI description is read from the handler: summary and
description from its docstring, the status from its decorator, parameters from its signature, the tag from its module.
Errors common to authentication, bodies and the store are added by `openapi/operation.py`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar.handlers import BaseRouteHandler

from tideq.queue_core import errors
from tideq.queue_core.outbox.stream import CURSOR_FORM

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
"""Every error that refuses a submission."""


class HeaderDoc(msgspec.Struct, frozen=True):
    """A header of a request or a response."""

    name: str
    description: str
    example: str
    schema: Mapping[str, Any] = {}


class Link(msgspec.Struct, frozen=True):
    """An operation that can follow this one, with the values that it takes from the response."""

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
    is_hot: bool


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
    is_hot: bool = False,
) -> dict[str, Any]:
    """A handler's `opt`. Admins may call everything, so without roles the route is for admins alone.

    `answer` is a response schema, a tuple of alternatives, or None where the response is no JSON document of ours;
    `refuses` are the errors that the handler's verb raises; `examples` of the body, by name, replace the one composed
    of the fields' examples. `is_hot` marks calls made for every task, which `hot_path.py` answers: each must be a
    POST whose path has no parameter, or a worker's id.
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
        is_hot=is_hot,
    )
    return {"operation": operation_of_handler}


def operation_of_handler(handler: BaseRouteHandler) -> Operation:
    found = handler.opt.get("operation")
    if not isinstance(found, Operation):
        raise TypeError(f"{handler} declares no operation; add opt=operation(…) to it")
    return found


def link_to(*operations: str, body: Mapping[str, str] | None = None, **parameters: str) -> tuple[Link, ...]:
    """Links to operations by their ids. A value is a JSON Pointer into the response, or an OpenAPI expression."""
    return tuple(Link(operation, parameters, body or {}) for operation in operations)


IDEMPOTENCY_KEY = HeaderDoc(
    "Idempotency-Key",
    "A structured-field string, quoted; the unquoted form is accepted too. The body's `idempotency_key` overrides it.",
    '"order-1042"',
    {"minLength": 1, "maxLength": 255},
)
MAX_BATCH_KEY_LENGTH = 250
"""Each task's index in the batch is appended, and the result must be a valid key too."""
BATCH_KEY = HeaderDoc(
    "Idempotency-Key",
    "The key of the whole batch; tasks with a key of their own keep it.",
    '"import-7"',
    {"minLength": 1, "maxLength": MAX_BATCH_KEY_LENGTH},
)
TRACEPARENT = HeaderDoc(
    "traceparent",
    "W3C Trace Context, passed on to the worker; ignored if it is not valid.",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
)
TRACESTATE = HeaderDoc("tracestate", "Passed on with `traceparent`.", "vendor=00f067aa0ba902b7")
BAGGAGE = HeaderDoc("baggage", "Passed on with `traceparent`.", "tenant=c-118")
TRACE = (TRACEPARENT, TRACESTATE, BAGGAGE)
EVENT_ID = {"pattern": f"^({CURSOR_FORM})?$"}
"""An empty value means no event."""
LAST_EVENT_ID = HeaderDoc(
    "Last-Event-ID", "Resume after this event, if it is still stored.", "1772442900250-0-1", EVENT_ID
)
RATE_LIMIT = (
    HeaderDoc(
        "RateLimit-Policy",
        "If clients have a rate limit: tasks at once (`q`) and seconds in which these refill (`w`).",
        '"client";q=9;w=60',
    ),
    HeaderDoc("RateLimit", "Tasks left (`r`), and seconds until all are available again (`t`).", '"client";r=8;t=7'),
)
LOCATION = HeaderDoc("Location", "The task's address.", "/api/v1/tasks/0195546e-3c7a-7d21-9f04-00a1b2c3d4e5")
