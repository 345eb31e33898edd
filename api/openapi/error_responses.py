"""Error responses of the OpenAPI document: one for each status, with an example for each kind of error.

Statuses, titles and headers come from `problems.py`, applied to the examples below.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from litestar.exceptions import ClientException, ValidationException

from tideq.api.edge import problems
from tideq.api.openapi.components import Components
from tideq.queue_core import errors
from tideq.queue_core.store.formats import unknown_format

Refusal = type[Exception]
TASK_ID = "0195546e-3c7a-7d21-9f04-00a1b2c3d4e5"
LEVELS = ("high", "low", "medium")


class BodyTooLarge(ClientException):
    status_code = 413


SHOWN: tuple[Exception, ...] = (
    problems.BadRequest("the body is not JSON: expected `,` or `}` (byte 22)"),
    problems.Unauthorized("the key is unknown or revoked"),
    problems.Forbidden("a viewer key may not do this; use a key with the role admin or producer"),
    problems.UnprocessableContent("Expected `int`, got `str`", "/max_retries"),
    problems.ServiceClosing("the service is stopping; try again"),
    ValidationException("Validation failed for GET /api/v1/workers"),
    BodyTooLarge("Request Entity Too Large"),
    errors.PayloadTooLarge("parameters", 300_000, 262_144),
    errors.InvalidTask("task_type", "'re size' is not a name: letters, digits, '_', '.', '-', at most 64"),
    errors.UnknownPriority("urgent", LEVELS),
    errors.RankOutOfRange(TASK_ID, 4_400_000_000_000),
    errors.IdempotencyConflict(TASK_ID),
    errors.LanesExhausted("resize|gpu"),
    errors.TooManyNewLanes("shop", 256),
    errors.QueueFull("soft", 100_000, 100_000, 5_000),
    errors.TooManySubmissions("shop", 1_000, 500, 10_000, 0, 10_000),
    errors.BatchAboveBurst(200, 100),
    errors.KeyPending("5f1c0c7a", TASK_ID, 3, 0),
    errors.OutboxFull(1_000_000, 1_000_000, 5_000),
    errors.StoreFull(5_000),
    errors.TaskNotFound(TASK_ID),
    errors.WrongState(TASK_ID, "completed"),
    errors.StaleLease(TASK_ID, "queued"),
    errors.UnknownWorker("resizer-3f9c51d2a7b8"),
    errors.WorkerExists("resizer-3f9c51d2a7b8"),
    errors.StoreReplaced("7"),
    unknown_format("4"),
    errors.TaskUnreadable(TASK_ID),
    errors.StoreUnavailable("the store does not answer"),
    errors.StoreRefused("this user has no permissions to access one of the keys"),
    errors.HistoryUnavailable("history does not answer"),
    errors.HistoryRefused("cannot execute INSERT in a read-only transaction"),
    errors.DurabilityUnavailable("replica", "the store has no replica"),
    errors.DurabilityNotReached(TASK_ID, "replica", "store"),
)
"""One example of each kind."""

HEADERS = {
    "Retry-After": {"description": "Seconds after which a retry may succeed.", "schema": {"type": "integer"}},
    "RateLimit-Policy": {"description": "How many tasks a client may submit.", "schema": {"type": "string"}},
    "RateLimit": {
        "description": "Tasks left, and seconds until all are available again.",
        "schema": {"type": "string"},
    },
    "WWW-Authenticate": {"description": "The authentication scheme to use.", "schema": {"type": "string"}},
}
PROBLEMS = {"Problem": "A problem document, RFC 9457.", "FieldProblem": "One error in the body."}
FIELDS = {
    "type": "The kind of problem; stable, for programs.",
    "title": "The kind of problem in words.",
    "status": "The HTTP status.",
    "detail": "What happened in this request.",
    "instance": "The path of the request.",
    "state": "The state of the task, where that caused the problem.",
    "task_id": "The task concerned.",
    "errors": "The errors in the body, each with a JSON Pointer.",
    "durability": "The level that an accepted task has reached, where it requested more.",
    "pointer": "The place in the body, as a JSON Pointer.",
}


def examples() -> dict[str, Any]:
    """Every problem document, by the name that responses refer to."""
    return {
        _name(type(error)): {"summary": document.title, "value": msgspec.to_builtins(document)}
        for error in SHOWN
        for document in [problems.problem_of(error)[0]]
    }


def responses(kinds: Iterable[Refusal]) -> dict[str, Any]:
    by_status: dict[int, list[Exception]] = {}
    shown = {type(error): error for error in SHOWN}
    for kind in dict.fromkeys(kinds):
        if kind not in shown:
            raise TypeError(f"{kind.__name__} has no example; add one to SHOWN in {__name__}")
        by_status.setdefault(problems.problem_of(shown[kind])[0].status, []).append(shown[kind])
    return {str(status): _response(found) for status, found in sorted(by_status.items())}


def _response(found: list[Exception]) -> dict[str, Any]:
    documents = [problems.problem_of(error) for error in found]
    headers = {name: HEADERS[name] for _, named in documents for name in named}
    content = {
        "schema": {"$ref": "#/components/schemas/Problem"},
        "examples": {_name(type(error)): {"$ref": f"#/components/examples/{_name(type(error))}"} for error in found},
    }
    return {
        "description": "; ".join(dict.fromkeys(document.title for document, _ in documents)) + ".",
        **({"headers": headers} if headers else {}),
        "content": {problems.MEDIA_TYPE: content},
    }


def problem_schemas(components: Components) -> None:
    """Adds descriptions; the fields have no defaults, since empty ones are left out."""
    components.of(problems.Problem)
    for name, meaning in PROBLEMS.items():
        made = components.schemas[name]
        properties = {field: _described(field, each) for field, each in made["properties"].items()}
        components.schemas[name] = {**made, "description": meaning, "properties": properties}


def _described(field: str, schema: dict[str, Any]) -> dict[str, Any]:
    if field not in FIELDS:
        raise TypeError(f"a problem's {field} has no description; add one to FIELDS in {__name__}")
    return {"description": FIELDS[field], **{key: value for key, value in schema.items() if key != "default"}}


def _name(kind: Refusal) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()
