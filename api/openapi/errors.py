"""What can go wrong with a call: one response for each status, an example for each kind of refusal.

Statuses, titles and headers are those that `problems.py` gives the very errors shown here.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from litestar.exceptions import ClientException, ValidationException

from tideq.api.edge import problems
from tideq.api.openapi.components import Components
from tideq.queue_core import errors

Refusal = type[Exception]
TASK_ID = "0195546e-3c7a-7d21-9f04-00a1b2c3d4e5"
LEVELS = ("high", "low", "medium")


class BodyTooLarge(ClientException):
    status_code = 413


SHOWN: tuple[Exception, ...] = (
    problems.BadRequest("the body is not JSON: expected `,` or `}` (byte 22)"),
    problems.Unauthorized("the key is unknown or revoked"),
    problems.Forbidden("a viewer key may not do this; it takes admin or producer"),
    problems.UnprocessableContent("Expected `int`, got `str`", "/max_retries"),
    problems.ServiceClosing("draining"),
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
    errors.StoreTooNew("3"),
    errors.TaskUnreadable(TASK_ID),
    errors.StoreUnavailable("the store does not answer"),
    errors.StoreRefused("this user has no permissions to access one of the keys"),
    errors.HistoryUnavailable("history does not answer"),
    errors.HistoryRefused("cannot execute INSERT in a read-only transaction"),
    errors.DurabilityUnavailable("replica", "the store has no replica"),
    errors.DurabilityNotReached(TASK_ID, "replica", "store"),
)
"""One of each kind."""

HEADERS = {
    "Retry-After": {"description": "Seconds after which trying again may succeed.", "schema": {"type": "integer"}},
    "RateLimit-Policy": {"description": "How much a client may submit.", "schema": {"type": "string"}},
    "RateLimit": {"description": "How much is left of it, and when it is full again.", "schema": {"type": "string"}},
    "WWW-Authenticate": {"description": "How to show a key.", "schema": {"type": "string"}},
}
PROBLEMS = {"Problem": "A problem document, RFC 9457.", "FieldProblem": "One thing that is wrong with the body."}
FIELDS = {
    "type": "Which problem it is; stable, for programs to go by.",
    "title": "The same in words.",
    "status": "The HTTP status.",
    "detail": "What happened this time.",
    "instance": "The path it happened at.",
    "state": "The state a task is in, where that is what stands in the way.",
    "task_id": "The task it is about.",
    "errors": "What is wrong with the body, by JSON Pointer.",
    "durability": "What a task that stands has reached, where it asked for more.",
    "pointer": "Where in the body, as a JSON Pointer.",
}


def examples() -> dict[str, Any]:
    """Every problem document, by the name responses refer to it."""
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
            raise TypeError(f"{kind.__name__} has no example: add one to SHOWN in {__name__}")
        by_status.setdefault(problems.problem_of(shown[kind])[0].status, []).append(shown[kind])
    return {str(status): _response(found) for status, found in sorted(by_status.items())}


def _response(found: list[Exception]) -> dict[str, Any]:
    told = [problems.problem_of(error) for error in found]
    headers = {name: HEADERS[name] for _, named in told for name in named}
    content = {
        "schema": {"$ref": "#/components/schemas/Problem"},
        "examples": {_name(type(error)): {"$ref": f"#/components/examples/{_name(type(error))}"} for error in found},
    }
    return {
        "description": "; ".join(dict.fromkeys(document.title for document, _ in told)) + ".",
        **({"headers": headers} if headers else {}),
        "content": {problems.MEDIA_TYPE: content},
    }


def problem_schemas(components: Components) -> None:
    """The document in words; its fields have no defaults, those left out have nothing to say."""
    components.of(problems.Problem)
    for name, meaning in PROBLEMS.items():
        made = components.schemas[name]
        properties = {field: _described(field, each) for field, each in made["properties"].items()}
        components.schemas[name] = {**made, "description": meaning, "properties": properties}


def _described(field: str, schema: dict[str, Any]) -> dict[str, Any]:
    if field not in FIELDS:
        raise TypeError(f"say what a problem's {field} means: add it to FIELDS in {__name__}")
    return {"description": FIELDS[field], **{key: value for key, value in schema.items() if key != "default"}}


def _name(kind: Refusal) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()
