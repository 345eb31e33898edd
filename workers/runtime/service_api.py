"""The worker protocol over HTTP, as far as the runtime speaks it. Answers may have more fields than are read here."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from tideq.workers.runtime.http import http_for

PROBLEMS = "https://tideq.dev/problems/"
UNKNOWN_WORKER = "unknown-worker"
ANSWER_SECONDS = 15.0
ABOUT_THE_REQUEST = (400, 413, 422)
"""Refusals that count from whomever they come: repeating the same request cannot help."""
ABOUT_THE_KEY = (401, 403)

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
    """Whether tasks may be executing when they are handed out: an older service would refuse to be asked."""


class ProblemReply(msgspec.Struct, frozen=True):
    type: str = ""
    detail: str = ""

    @property
    def code(self) -> str:
        return self.type.removeprefix(PROBLEMS)

    @property
    def is_ours(self) -> bool:
        return self.type.startswith(PROBLEMS)


class ReportOutcome(msgspec.Struct, frozen=True):
    task_id: str
    ok: bool
    problem: ProblemReply | None = None

    @property
    def code(self) -> str:
        return self.problem.code if self.problem else ""


class BlockedType(msgspec.Struct, frozen=True):
    """A task type the worker gets nothing of, or a few to try, because it failed too often."""

    task_type: str | None = None
    """`None` for all types."""
    until: str | None = None
    reason: str = ""


class ServiceReply(msgspec.Struct, frozen=True):
    """To a poll, a sync or a heartbeat."""

    tasks: list[AssignedTask] = []
    cancel: list[str] = []
    should_drain: bool = False
    outcomes: list[ReportOutcome] = []
    held_back: list[BlockedType] = []
    """Left out where there is nothing, and by a sync of reports alone."""


class ServiceRefusal(Exception):
    """The service understood and said no: trying again as it is will not help."""

    def __init__(self, status: int, problem: ProblemReply) -> None:
        super().__init__(f"{problem.code or status}: {problem.detail}")
        self.status, self.problem = status, problem

    @property
    def is_unknown_worker(self) -> bool:
        return self.problem.code == UNKNOWN_WORKER

    @property
    def is_about_content(self) -> bool:
        """What was said cannot be taken as it is; whose it was did not matter."""
        return self.status in ABOUT_THE_REQUEST


class Unreachable(Exception):
    """The service did not answer, or cannot or will not deal with this worker just now: try again."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


decode_answer = msgspec.json.Decoder(ServiceReply).decode
decode_registration = msgspec.json.Decoder(Registration).decode
decode_problem = msgspec.json.Decoder(ProblemReply).decode
encode = msgspec.json.Encoder().encode


def headers(api_key: str | None) -> dict[str, str]:
    return {"content-type": "application/json", **({"authorization": f"Bearer {api_key}"} if api_key else {})}


class ServiceApi:
    """One service, any number of workers. Use as an async context manager."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._http = http_for(f"{url.rstrip('/')}/internal/workers", headers(api_key))

    async def __aenter__(self) -> "ServiceApi":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def register(self, description: Mapping[str, Any]) -> Registration:
        return _read(await self._send("POST", "/register", description), decode_registration)

    async def poll(self, worker_id: str, wait_seconds: float, asked: Mapping[str, Any]) -> ServiceReply:
        body = {**asked, "wait_seconds": wait_seconds}
        return _read(await self._send("POST", f"/{worker_id}/poll", body, wait_seconds), decode_answer)

    async def sync(self, worker_id: str, **parts: Any) -> ServiceReply:
        return _read(await self._send("POST", f"/{worker_id}/sync", parts), decode_answer)

    async def call(self, worker_id: str, verb: str, row: Any) -> None:
        """One of start, progress, extend and result by itself."""
        await self._send("POST", f"/{worker_id}/{verb}", row)

    async def leave(self, worker_id: str) -> None:
        await self._send("DELETE", f"/{worker_id}")

    async def _send(self, method: str, path: str, body: Any = None, wait_seconds: float = 0) -> bytes:
        content = b"" if body is None else encode(body)
        try:
            response = await self._http.request(method, path, content, ANSWER_SECONDS + wait_seconds)
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"{type(error).__name__}: {error}") from error
        if 200 <= response.status < 300:
            return response.body
        raise refusal(response.status, response.body, response.header("retry-after"))


def _read(body: bytes, decode: Callable[[bytes], T]) -> T:
    """Whatever stands between may answer in the service's place."""
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        raise Unreachable(f"not an answer of the service: {error}") from error


def refusal(status: int, body: bytes, retry_after: str | None) -> Exception:
    """What says nothing about the request itself is worth another try: trouble, a key, a proxy's own "not found"."""
    problem = problem_in(body)
    is_answer = problem.is_ours and status < 500 and status not in (429, *ABOUT_THE_KEY)
    if is_answer or status in ABOUT_THE_REQUEST:
        return ServiceRefusal(status, problem)
    seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
    return Unreachable(f"{status} {problem.detail}", seconds)


def problem_in(body: bytes) -> ProblemReply:
    try:
        return decode_problem(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ProblemReply(detail=body[:200].decode(errors="replace"))
