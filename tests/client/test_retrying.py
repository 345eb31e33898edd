"""When a call is made again: the policy alone, with made-up clocks and chances."""

import pytest

from tideq.client.calls import tasks as calls
from tideq.client.calls.base import Call
from tideq.client.errors import (
    BadAnswer,
    CannotConnect,
    Conflict,
    DurabilityNotReached,
    InvalidRequest,
    NoAnswer,
    NotFound,
    Problem,
    Refusal,
    ServerError,
    TideqError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UntrustedServer,
)
from tideq.client.retrying import NO_RETRIES, RetryPolicy, RetryState

POLICY = RetryPolicy(deadline_seconds=60, base_seconds=1, multiplier=2, cap_seconds=8)


def said(kind: type[Refusal], status: int, retry_after: float | None = None, state: str = "") -> Refusal:
    return kind(Problem(status=status, state=state), retry_after)


def delay(error: TideqError, attempts: int = 1, elapsed: float = 0, chance: float = 0, **options: bool) -> float | None:
    return POLICY.delay(error, attempts=attempts, elapsed=elapsed, chance=chance, **options)


@pytest.mark.parametrize(
    ("error", "is_tried_again", "even_if_not_repeatable"),
    [
        (CannotConnect(), True, True),
        (said(TooManyRequests, 429), True, True),
        (NoAnswer(), True, False),
        (said(Unavailable, 503), True, False),
        (said(Unavailable, 502), True, False),
        (said(Unavailable, 504), True, False),
        (said(DurabilityNotReached, 504), False, False),
        (said(ServerError, 500), False, False),
        (said(InvalidRequest, 422), False, False),
        (said(NotFound, 404), False, False),
        (said(Conflict, 409), False, False),
        (said(Unauthorized, 401), False, False),
        (UntrustedServer(), False, False),
        (BadAnswer(), False, False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_may_pass_is_tried_again_and_what_may_be_done_only_if_repeatable(
    error: TideqError, is_tried_again: bool, even_if_not_repeatable: bool
) -> None:
    assert (delay(error) is not None) is is_tried_again
    assert (delay(error, is_repeatable=False) is not None) is even_if_not_repeatable


def test_delays_grow_to_their_cap() -> None:
    delays = [delay(CannotConnect(), attempts) for attempts in (1, 2, 3, 4, 5, 1_000)]

    assert delays == [1, 2, 4, 8, 8, 8]


def test_chance_takes_up_to_half() -> None:
    assert [delay(CannotConnect(), 3, chance=chance) for chance in (0, 0.5, 1)] == [4, 3, 2]


def test_a_named_time_is_waited_for_and_a_little_more() -> None:
    assert delay(said(TooManyRequests, 429, retry_after=5), chance=0) == 6
    assert delay(said(TooManyRequests, 429, retry_after=5), chance=1) == 5.5
    assert delay(said(Unavailable, 503, retry_after=0), chance=0) == 1


def test_no_attempt_begins_after_the_deadline() -> None:
    assert delay(CannotConnect(), elapsed=59) == 1
    assert delay(CannotConnect(), elapsed=59.5) is None
    assert delay(said(TooManyRequests, 429, retry_after=60)) is None
    assert POLICY.within(10).delay(CannotConnect(), attempts=1, elapsed=9.5, chance=0) is None
    assert POLICY.within(1_000).deadline_seconds == 60
    assert NO_RETRIES.delay(CannotConnect(), attempts=1, elapsed=0, chance=1) is None


def test_attempts_are_counted_on_a_clock_of_their_own() -> None:
    clock = iter((100.0, 101.0, 103.0, 161.0))
    attempts = RetryState(POLICY, now=lambda: next(clock), chance=lambda: 0)
    error = CannotConnect("gone")

    assert [attempts.delay(error) for _ in range(3)] == [1, 2, None]
    assert error.__notes__ == ["gave up after 3 attempts in 61.0 s"]


@pytest.mark.parametrize(
    ("call", "refusal", "is_settled"),
    [
        (calls.cancel("x"), said(Conflict, 409, state="cancelled"), True),
        (calls.cancel("x"), said(Conflict, 409, state="completed"), False),
        (calls.cancel("x"), said(NotFound, 404), False),
        (calls.purge("x"), said(NotFound, 404), True),
        (calls.purge("x"), said(Conflict, 409, state="queued"), False),
        (calls.retry("x", reset_retry_count=True, new_priority=None), said(Conflict, 409, state="executing"), True),
        (calls.retry("x", reset_retry_count=True, new_priority=None), said(Conflict, 409, state="completed"), False),
        (calls.read("x", history=False), said(NotFound, 404), False),
    ],
)
def test_a_refusal_settles_a_call_only_after_an_attempt_that_may_be_done(
    call: Call[object], refusal: Refusal, is_settled: bool
) -> None:
    fresh, refused_before, unheard_before = RetryState(POLICY), RetryState(POLICY), RetryState(POLICY)
    refused_before.delay(CannotConnect())
    unheard_before.delay(NoAnswer())

    assert fresh.result_of_refusal(call, refusal) is None
    assert refused_before.result_of_refusal(call, refusal) is None
    assert (unheard_before.result_of_refusal(call, refusal) is not None) is is_settled
