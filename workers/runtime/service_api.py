"""The calls of the worker protocol over HTTP that the runtime needs. Unread fields of a reply are ignored."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from tideq.client.http.endpoint import endpoint_of
from tideq.client.http.exchange import ExchangeFailed, HttpRequest, Response, Stale, Timeouts
from tideq.client.http.over_aiohttp import AsyncHttp

PROBLEMS = "https://tideq.dev/problems/"
UNKNOWN_WORKER = "unknown-worker"
TIMEOUTS = Timeouts(connect=5.0, read=15.0, write=15.0)
MAX_CONNECTIONS = 1_000_000
"""No limit here: the callers limit their requests."""
INVALID_REQUEST_STATUSES = (400, 413, 422)
"""Refusals that are final, also from a proxy: repeating the same request cannot succeed."""
ACCESS_KEY_STATUSES = (401, 403)

T = TypeVar("T")


class AssignedTask(msgspec.Struct, frozen=True):
    task_id: str
    task_type: str
    parameters: msgspec.Raw
    attempt: int
    lease: str
    timeout_seconds: float
    status: str = "assigned"
    traceparent: str | None = None
    tracestate: str = ""
    baggage: str = ""

    @property
    def is_started(self) -> bool:
        return self.status == "executing"


class Registration(msgspec.Struct, frozen=True):
    worker_id: str
    heartbeat_interval_ms: int
    queue: str = ""
    can_start_claimed: bool = False
    """Whether a poll may return tasks already started; an older service refuses the field `start_claimed`."""


class ProblemReply(msgspec.Struct, frozen=True):
    type: str = ""
    detail: str = ""

    @property
    def code(self) -> str:
        return self.type.removeprefix(PROBLEMS)

    @property
    def is_from_tideq(self) -> bool:
        return self.type.startswith(PROBLEMS)


class RowOutcome(msgspec.Struct, frozen=True):
    task_id: str
    ok: bool
    problem: ProblemReply | None = None

    @property
    def code(self) -> str:
        return self.problem.code if self.problem else ""


class BlockedTaskType(msgspec.Struct, frozen=True):
    """A task type whose circuit is open: the worker gets none of it, or a few as a trial."""

    task_type: str | None = None
    """None for all types."""
    until: str | None = None
    reason: str = ""


class ServiceReply(msgspec.Struct, frozen=True):
    """The reply to a poll, a sync or a heartbeat."""

    tasks: list[AssignedTask] = []
    cancel: list[str] = []
    should_drain: bool = False
    outcomes: list[RowOutcome] = []
    blocked_types: list[BlockedTaskType] = []
    """Absent where empty, and in the reply to a sync of reports alone."""


class ServiceRefusal(Exception):
    """The service refused the request: repeating it unchanged cannot succeed."""

    def __init__(self, status: int, problem: ProblemReply) -> None:
        super().__init__(f"{problem.code or status}: {problem.detail}")
        self.status, self.problem = status, problem

    @property
    def is_unknown_worker(self) -> bool:
        return self.problem.code == UNKNOWN_WORKER

    @property
    def is_invalid_request(self) -> bool:
        """The content of the request was refused, not the worker or its lease."""
        return self.status in INVALID_REQUEST_STATUSES


class Unreachable(Exception):
    """No reply, or the service cannot serve this worker now: try again."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


decode_reply = msgspec.json.Decoder(ServiceReply).decode
decode_registration = msgspec.json.Decoder(Registration).decode
decode_problem = msgspec.json.Decoder(ProblemReply).decode
encode = msgspec.json.Encoder().encode


def headers(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def http_for(url: str, api_key: str | None) -> AsyncHttp:
    return AsyncHttp(endpoint_of(url, headers(api_key)), TIMEOUTS, verify=True, max_connections=MAX_CONNECTIONS)


class ServiceApi:
    """One service, any number of workers. Use as an async context manager."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._http = http_for(f"{url.rstrip('/')}/internal/workers", api_key)

    async def __aenter__(self) -> "ServiceApi":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def register(self, description: Mapping[str, Any]) -> Registration:
        return _read(await self._send("POST", "/register", description), decode_registration)

    async def poll(self, worker_id: str, wait_seconds: float, claim: Mapping[str, Any]) -> ServiceReply:
        body = {**claim, "wait_seconds": wait_seconds}
        return _read(await self._send("POST", f"/{worker_id}/poll", body, wait_seconds), decode_reply)

    async def sync(self, worker_id: str, **parts: Any) -> ServiceReply:
        return _read(await self._send("POST", f"/{worker_id}/sync", parts), decode_reply)

    async def call(self, worker_id: str, verb: str, row: Any) -> None:
        """Sends a single start, progress, extend or result."""
        await self._send("POST", f"/{worker_id}/{verb}", row)

    async def deregister(self, worker_id: str) -> None:
        await self._send("DELETE", f"/{worker_id}")

    async def _send(self, method: str, path: str, body: Any = None, wait_seconds: float = 0) -> bytes:
        content = None if body is None else encode(body)
        try:
            response = await self._exchange(
                HttpRequest(method=method, path=path, body=content, waits_seconds=wait_seconds)
            )
        except ExchangeFailed as error:
            raise Unreachable(f"{type(error).__name__}: {error}") from error
        if response.is_success:
            return response.body
        raise refusal(response.status, response.body, response.headers.get("Retry-After"))

    async def _exchange(self, request: HttpRequest) -> Response:
        """Sends again where a kept connection broke before a byte of the response.

        That is safe: polls have an id, reports a lease, and registrations are repeated anyway when no reply arrives.
        """
        while True:
            with contextlib.suppress(Stale):
                return await self._http.request(request)


def _read(body: bytes, decode: Callable[[bytes], T]) -> T:
    """Raises Unreachable: a proxy may have answered in place of the service."""
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        raise Unreachable(f"the reply is not from a TideQ service: {error}") from error


def refusal(status: int, body: bytes, retry_after: str | None) -> Exception:
    """Unreachable where a retry may succeed: server errors, access keys, a proxy's 404; else ServiceRefusal."""
    problem = problem_in(body)
    is_refusal = problem.is_from_tideq and status < 500 and status not in (429, *ACCESS_KEY_STATUSES)
    if is_refusal or status in INVALID_REQUEST_STATUSES:
        return ServiceRefusal(status, problem)
    seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
    return Unreachable(f"{status} {problem.detail}", seconds)


def problem_in(body: bytes) -> ProblemReply:
    try:
        return decode_problem(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ProblemReply(detail=body[:200].decode(errors="replace"))
