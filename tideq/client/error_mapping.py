"""Maps a response without success to an exception. Pure."""

import email.utils
import time

import msgspec

from tideq.client import errors
from tideq.client.errors import Problem, Refusal

BY_CODE: dict[str, type[Refusal]] = {
    "payload-too-large": errors.PayloadTooLarge,
    "idempotency-conflict": errors.IdempotencyConflict,
    "unknown-worker": errors.UnknownWorker,
    "stale-lease": errors.StaleLease,
    "durability-not-reached": errors.DurabilityNotReached,
}
BY_STATUS: dict[int, type[Refusal]] = {
    400: errors.InvalidRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.PayloadTooLarge,
    422: errors.InvalidRequest,
    429: errors.TooManyRequests,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}
"""For problem types without a class of their own, and for proxies, which send no problem document."""
MAX_SHOWN = 200


def refusal(status: int, body: bytes, retry_after: str | None = None) -> errors.TideqError:
    return refused_by(problem_in(status, body), status, retry_after)


def refused_by(problem: Problem, status: int = 0, retry_after: str | None = None) -> errors.TideqError:
    status = status or problem.status
    kind = BY_CODE.get(problem.code) or BY_STATUS.get(status)
    if kind is None and status < 500:
        return errors.BadAnswer(f"the response is not from a TideQ service: HTTP {status} {problem.detail}")
    return (kind or errors.ServerError)(problem, seconds_until(retry_after))


def problem_in(status: int, body: bytes) -> Problem:
    """The problem document of a response, else one made from its status."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = Problem()
    if problem.type.startswith(errors.PROBLEM_TYPES):
        return problem
    text = " ".join(body.decode(errors="replace").split())[:MAX_SHOWN]
    return Problem(title=f"HTTP {status}", status=status, detail=f"HTTP {status}: {text}" if text else f"HTTP {status}")


def seconds_until(retry_after: str | None, now: float | None = None) -> float | None:
    """Reads `Retry-After`, seconds or a date; None for anything else."""
    if not retry_after:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        instant = email.utils.parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(instant.timestamp() - (time.time() if now is None else now), 0.0)
