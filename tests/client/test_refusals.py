"""Which error an answer becomes; and that the service knows none the client would take for something else."""

import msgspec
import pytest

from tideq.api.edge import problems
from tideq.client import errors
from tideq.client.error_mapping import refusal, seconds_until
from tideq.client.errors import PROBLEM_TYPES, Problem, Refusal
from tideq.queue_core.errors import QueueError

SERVICE_ERRORS: list[tuple[str, int]] = [(kind.code, status) for kind, (status, _) in problems.STATUSES.items()] + [
    (kind.code, kind.status)
    for kind in (
        problems.BadRequest,
        problems.Unauthorized,
        problems.Forbidden,
        problems.UnprocessableContent,
        problems.ServiceClosing,
    )
]
BY_STATUS: dict[int, type[Refusal]] = {
    400: errors.InvalidRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.InvalidRequest,
    422: errors.InvalidRequest,
    429: errors.TooManyRequests,
    503: errors.Unavailable,
    504: errors.DurabilityNotReached,
}


def answer(code: str, status: int, **fields: object) -> errors.TideqError:
    document = {"type": PROBLEM_TYPES + code, "title": "t", "status": status, "detail": "d", **fields}
    return refusal(status, msgspec.json.encode(document))


@pytest.mark.parametrize(("code", "status"), SERVICE_ERRORS, ids=lambda value: str(value))
def test_every_problem_of_the_service_becomes_the_error_of_its_kind(code: str, status: int) -> None:
    error = answer(code, status)

    assert isinstance(error, BY_STATUS[status])
    assert (error.problem.code, error.problem.status, str(error)) == (code, status, "d")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("stale-lease", 409, errors.StaleLease),
        ("wrong-state", 409, errors.Conflict),
        ("unknown-worker", 404, errors.UnknownWorker),
        ("task-not-found", 404, errors.NotFound),
        ("idempotency-conflict", 422, errors.IdempotencyConflict),
        ("payload-too-large", 413, errors.PayloadTooLarge),
        ("durability-not-reached", 504, errors.DurabilityNotReached),
        ("internal", 500, errors.ServerError),
        ("not-thought-of-yet", 422, errors.InvalidRequest),
        ("not-thought-of-yet", 507, errors.ServerError),
    ],
)
def test_the_type_decides_before_the_status(code: str, status: int, kind: type[Refusal]) -> None:
    assert type(answer(code, status)) is kind


def test_the_document_is_kept() -> None:
    error = answer("wrong-state", 409, state="queued", task_id="0195", errors=[{"pointer": "/a", "detail": "b"}], new=1)

    assert isinstance(error, errors.Conflict)
    assert (error.state, error.task_id, error.problem.errors[0].pointer) == ("queued", "0195", "/a")


def test_all_the_services_problem_fields_are_read() -> None:
    assert set(problems.Problem.__struct_fields__) <= set(Problem.__struct_fields__)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (502, b"<html>\n<h1>Bad Gateway</h1>", errors.Unavailable),
        (503, b"", errors.Unavailable),
        (504, b"\xff", errors.Unavailable),
        (500, b"oops", errors.ServerError),
        (404, b'{"type": "about:blank"}', errors.NotFound),
        (418, b"teapot", errors.BadAnswer),
        (301, b"", errors.BadAnswer),
    ],
)
def test_an_answer_of_something_between_is_told_by_its_status(
    status: int, body: bytes, kind: type[errors.TideqError]
) -> None:
    error = refusal(status, body)

    assert type(error) is kind
    assert f"HTTP {status}" in str(error)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7),
        (" 7 ", 7),
        ("soon", None),
        ("-3", None),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 70),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(written: str | None, seconds: float | None) -> None:
    assert seconds_until(written, now=30) == seconds


def test_no_code_of_the_service_is_its_parents() -> None:
    """A class of errors without a code of its own would look to clients like another."""
    codes = [code for code, _ in SERVICE_ERRORS if code != "invalid-request"]

    assert len(codes) == len(set(codes))
    assert QueueError.code not in codes
