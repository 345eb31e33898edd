"""The worker protocol over HTTP, as far as the runtime speaks it. Answers may have more fields than are read here."""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import msgspec

PROBLEMS = "https://tideq.dev/problems/"
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0


class GivenTask(msgspec.Struct, frozen=True):
    task_id: str
    task_type: str
    parameters: msgspec.Raw
    attempt: int
    lease: str
    timeout_seconds: float
    traceparent: str | None = None


class Registration(msgspec.Struct, frozen=True):
    worker_id: str
    heartbeat_interval_ms: int


class Problem(msgspec.Struct, frozen=True):
    type: str = ""
    detail: str = ""

    @property
    def code(self) -> str:
        return self.type.removeprefix(PROBLEMS)


class Outcome(msgspec.Struct, frozen=True):
    task_id: str
    ok: bool
    problem: Problem | None = None


class Answer(msgspec.Struct, frozen=True):
    """To a poll or a sync."""

    tasks: list[GivenTask] = []
    cancel: list[str] = []
    should_drain: bool = False
    outcomes: list[Outcome] = []


class Refused(Exception):
    """The service understood and said no: trying again as it is will not help."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(f"{problem.code or status}: {problem.detail}")
        self.status, self.code = status, problem.code


class Unreachable(Exception):
    """The service did not answer, or said that it cannot just now: try again."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


decode_answer = msgspec.json.Decoder(Answer).decode
decode_registration = msgspec.json.Decoder(Registration).decode
decode_outcome = msgspec.json.Decoder(dict[str, Any]).decode
decode_problem = msgspec.json.Decoder(Problem).decode
encode = msgspec.json.Encoder().encode


def headers(api_key: str | None) -> dict[str, str]:
    return {"content-type": "application/json", **({"authorization": f"Bearer {api_key}"} if api_key else {})}


class Protocol:
    """One service, any number of workers. Use as an async context manager."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._http = httpx.AsyncClient(
            base_url=f"{url.rstrip('/')}/internal/workers",
            headers=headers(api_key),
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=60),
        )

    async def __aenter__(self) -> "Protocol":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def register(self, description: Mapping[str, Any]) -> Registration:
        return decode_registration(await self._call("/register", description))

    async def poll(self, worker_id: str, wanted: int, wait_seconds: float, poll_id: str) -> Answer:
        body = {"available_capacity": wanted, "wait_seconds": wait_seconds, "poll_id": poll_id}
        return decode_answer(await self._call(f"/{worker_id}/poll", body, wait_seconds))

    async def sync(self, worker_id: str, **parts: Sequence[Any]) -> Answer:
        return decode_answer(await self._call(f"/{worker_id}/sync", parts))

    async def result(self, worker_id: str, result: Any) -> None:
        await self._call(f"/{worker_id}/result", result)

    async def leave(self, worker_id: str) -> None:
        self._answer(await self._send("DELETE", f"/{worker_id}", b"", 0))

    async def _call(self, path: str, body: Any, wait_seconds: float = 0) -> bytes:
        return self._answer(await self._send("POST", path, encode(body), wait_seconds))

    async def _send(self, method: str, path: str, body: bytes, wait_seconds: float) -> httpx.Response:
        timeout = httpx.Timeout(ANSWER_SECONDS + wait_seconds, connect=CONNECT_SECONDS)
        try:
            return await self._http.request(method, path, content=body, timeout=timeout)
        except httpx.HTTPError as error:
            raise Unreachable(f"{type(error).__name__}: {error}") from error

    def _answer(self, response: httpx.Response) -> Any:
        if response.is_success:
            return response.content
        raise refusal(response.status_code, response.content, response.headers.get("retry-after"))


def refusal(status: int, body: bytes, retry_after: str | None) -> Exception:
    """Trouble of the service or of something between is worth another try; everything else is an answer."""
    try:
        problem = decode_problem(body)
    except msgspec.DecodeError:
        problem = Problem(detail=body[:200].decode(errors="replace"))
    if status == 429 or status >= 500:
        seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
        return Unreachable(f"{status} {problem.detail}", seconds)
    return Refused(status, problem)
