"""Turns errors into RFC 9457 problem documents. The only module with the HTTP statuses of errors.

A problem's `type` is stable: `https://tideq.dev/problems/<code>` with the error's own code. Clients must branch on it,
never on the texts.
"""

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import structlog
from litestar.exceptions import HTTPException, ValidationException
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from tideq.api.edge.responses import SAFE, JsonResponse, rate_limit_headers
from tideq.queue_core import errors
from tideq.queue_core.log_once import LogOnce

TYPE_PREFIX = "https://tideq.dev/problems/"
MEDIA_TYPE = "application/problem+json"
LOG_AGAIN_SECONDS = 60.0
"""A refusal by the store or by history is logged at most this often for each reason."""
CLIENT_CLOSED = 499
"""Status of a request whose client disconnected before the response; in metrics and traces, for no client reads it."""
FAILURE = "tideq.failure"
"""Key of the error that a request failed with in its ASGI scope, for its span."""

log = structlog.get_logger(__name__)


class FieldProblem(msgspec.Struct, frozen=True):
    pointer: str
    """JSON Pointer into the request's body."""
    detail: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    title: str
    status: int
    detail: str
    instance: str = ""
    state: str = ""
    """The state of the task, where that caused the problem."""
    task_id: str = ""
    durability: str = ""
    """The level that an accepted task has reached, where it requested more."""
    errors: tuple[FieldProblem, ...] = ()


class ClientDisconnected(Exception):
    """The client closed the connection before the response."""


class RequestError(Exception):
    """A request refused before the queue is called."""

    status = 400
    code = "bad-request"
    title = "The request cannot be read"

    def __init__(self, detail: str, pointer: str = "") -> None:
        super().__init__(detail)
        self.pointer = pointer


class BadRequest(RequestError):
    pass


class RequestTooSlow(RequestError):
    status = 408
    code = "request-too-slow"
    title = "The request was not received in time"


class HeadTooLarge(RequestError):
    status = 431
    code = "head-too-large"
    title = "The request's head is too large"


class CodingNotSupported(RequestError):
    status = 501
    code = "transfer-coding-not-supported"
    title = "The transfer coding is not supported"


class VersionNotSupported(RequestError):
    status = 505
    code = "http-version-not-supported"
    title = "The HTTP version is not supported"


class Unauthorized(RequestError):
    status = 401
    code = "unauthorized"
    title = "A valid key is required"


class Forbidden(RequestError):
    status = 403
    code = "forbidden"
    title = "The key does not allow this"


class UnprocessableContent(RequestError):
    status = 422
    code = "invalid-request"
    title = "A value is invalid"

    @classmethod
    def at(cls, message: str) -> "UnprocessableContent":
        """From msgspec's message, which ends with the path: `… - at `$.tasks[0].priority``."""
        detail, _, path = message.partition(" - at `$")
        named = path.rstrip("`").replace("[...]", "")
        pointer = named.replace("[", ".").replace("]", "").replace(".", "/")
        return cls(detail, pointer)


class ServiceClosing(RequestError):
    status = 503
    code = "service-closing"
    title = "The service is stopping"


PROTOCOL_ERRORS = {
    each.status: each for each in (BadRequest, RequestTooSlow, HeadTooLarge, CodingNotSupported, VersionNotSupported)
}
"""Refusals of requests that reach no application, by the status that `http11` gives them."""

STATUSES: dict[type[errors.QueueError], tuple[int, str]] = {
    errors.PayloadTooLarge: (413, "The payload is too large"),
    errors.InvalidTask: (422, "The task is invalid"),
    errors.InvalidRequest: (422, "A value is invalid"),
    errors.IdempotencyConflict: (422, "The idempotency key belongs to another submission"),
    errors.LanesExhausted: (503, "No lane is free"),
    errors.TooManyNewLanes: (429, "Too many new lanes"),
    errors.BatchAboveBurst: (422, "The batch is larger than the client's burst"),
    errors.KeyPending: (503, "A submission with this idempotency key is in progress"),
    errors.QueueFull: (429, "The queue is full"),
    errors.TooManySubmissions: (429, "Too many submissions"),
    errors.OutboxFull: (503, "History is too far behind"),
    errors.StoreFull: (503, "The store is full"),
    errors.TaskNotFound: (404, "There is no such task"),
    errors.WrongState: (409, "The task is in another state"),
    errors.StaleLease: (409, "The lease no longer holds the task"),
    errors.UnknownWorker: (404, "There is no such worker"),
    errors.WorkerExists: (409, "The worker exists already"),
    errors.StoreReplaced: (503, "The store is being replaced"),
    errors.StoreFormatUnknown: (503, "This version cannot read the store's format"),
    errors.TaskUnreadable: (503, "This version cannot read the task"),
    errors.StoreUnavailable: (503, "The store cannot be reached"),
    errors.StoreRefused: (503, "The store refused the command"),
    errors.HistoryUnavailable: (503, "History cannot be reached"),
    errors.HistoryRefused: (503, "History refused the statement"),
    errors.DurabilityUnavailable: (422, "The durability level is not available"),
    errors.DurabilityNotReached: (504, "The durability was not reached in time"),
}

DEFAULT_RETRY_AFTER_SECONDS = 1


def problem_of(error: Exception, path: str = "") -> tuple[Problem, dict[str, str]]:
    if isinstance(error, errors.QueueError):
        return _of_queue_error(error, path), _retry_after(error) | rate_limit_headers(getattr(error, "bucket", None))
    if isinstance(error, RequestError):
        fields = (FieldProblem(error.pointer, str(error)),) if error.pointer else ()
        document = Problem(TYPE_PREFIX + error.code, error.title, error.status, str(error), path, errors=fields)
        return document, _request_headers(error)
    if isinstance(error, ValidationException):
        return problem_of(_wrong_values(error), path)
    if isinstance(error, HTTPException):
        code, title = FRAMEWORK.get(error.status_code, ("http", "The request cannot be handled"))
        return Problem(TYPE_PREFIX + code, title, error.status_code, error.detail, path), dict(error.headers or {})
    # The text of an unexpected error may hold secrets: it is logged in full and never sent.
    return Problem(TYPE_PREFIX + "internal", "Internal error", 500, "see the service's log", path), {}


class ErrorResponder:
    """Makes the response of any error; counts refusals and logs what an operator must know."""

    def __init__(self, note_refusal: Callable[[Exception], None]) -> None:
        self._note_refusal = note_refusal
        self._logged = LogOnce(LOG_AGAIN_SECONDS)

    def respond(self, scope: Any, error: Exception) -> JsonResponse:
        if isinstance(error, ClientDisconnected):
            return JsonResponse(b"", CLIENT_CLOSED)
        scope[FAILURE] = error
        self._note(scope["path"], error)
        if isinstance(error, ValidationException):
            error = _wrong_values(error, _written_names(scope.get("route_handler")))
        document, headers = problem_of(error, scope["path"])
        return JsonResponse(msgspec.json.encode(document), document.status, {**SAFE, **headers}, MEDIA_TYPE)

    def _note(self, path: str, error: Exception) -> None:
        if isinstance(error, errors.StoreRefused | errors.HistoryRefused):
            if self._logged.is_new(f"{error.code} {error}"):
                log.error("request refused by the store or by history", path=path, exc_info=error)
        elif not isinstance(error, errors.QueueError | RequestError | HTTPException):
            log.error("request failed", path=path, exc_info=error)
        if isinstance(error, errors.QueueError | RequestError):
            self._note_refusal(error)


def protocol_refusal(status: int, detail: str) -> tuple[str, bytes]:
    """Media type and body of the response to a request that reached no application."""
    document, _ = problem_of(PROTOCOL_ERRORS[status](detail))
    return MEDIA_TYPE, msgspec.json.encode(document)


def _of_queue_error(error: errors.QueueError, path: str) -> Problem:
    status, title = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    field = getattr(error, "field", "")
    return Problem(
        type=TYPE_PREFIX + error.code,
        title=title,
        status=status,
        detail=str(error),
        instance=path,
        state=getattr(error, "state", ""),
        task_id=getattr(error, "task_id", ""),
        durability=getattr(error, "reached", ""),
        errors=(FieldProblem(_pointer(error, field, path), str(error)),) if field else (),
    )


def _pointer(error: errors.QueueError, field: str, path: str) -> str:
    """The field as the client wrote it: in seconds, and in a batch with its index."""
    name = field.replace("run_at_ms", "run_at").replace("_ms", "_seconds")
    row = getattr(error, "row", None)
    return f"/tasks/{row}/{name}" if row is not None and path.endswith("/batch") else f"/{name}"


def _retry_after(error: errors.QueueError) -> dict[str, str]:
    if isinstance(error, errors.Overloaded):
        return {"Retry-After": str(max(math.ceil(error.retry_after_ms / 1000), 1))}
    status = next((STATUSES[kind][0] for kind in type(error).__mro__ if kind in STATUSES), 500)
    return {"Retry-After": str(DEFAULT_RETRY_AFTER_SECONDS)} if status in (429, 503) else {}


def _request_headers(error: RequestError) -> dict[str, str]:
    if error.status == 401:
        return {"WWW-Authenticate": 'Bearer realm="tideq"'}
    return {"Retry-After": str(DEFAULT_RETRY_AFTER_SECONDS)} if error.status == 503 else {}


FRAMEWORK = {
    404: ("not-found", "There is nothing at this address"),
    405: ("method-not-allowed", "The method is not allowed here"),
    413: ("body-too-large", "The body is too large"),
}
"""Refusals by Litestar, before any route of ours."""


MISSING = re.compile(r"Missing required \w+ parameter '(\w+)'")


def _wrong_values(error: ValidationException, written: Mapping[str, str] = MappingProxyType({})) -> BadRequest:
    """Invalid query parameters, each by its name. Litestar uses the names of our functions' arguments; `written` maps
    those that differ to the names in the address.
    """
    if missing := MISSING.match(error.detail):
        return BadRequest(f"{written.get(missing[1], missing[1])}: this query parameter is required")
    invalid: Any = error.extra if isinstance(error.extra, list) else []
    wrong = [f"{written.get(each['key'], each['key'])}: {each['message']}" for each in invalid]
    return BadRequest("; ".join(wrong) or error.detail)


def _written_names(handler: Any) -> dict[str, str]:
    if not isinstance(handler, HTTPRouteHandler):
        return {}
    described = ((name, field.kwarg_definition) for name, field in handler.parsed_fn_signature.parameters.items())
    return {name: each.name or name for name, each in described if isinstance(each, QueryParameter)}
