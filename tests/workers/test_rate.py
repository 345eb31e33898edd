"""The token bucket, on a clock of the test's own."""

import pytest

from tideq.workers.runtime.rate import Rate


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_full_bucket_holds_one_second(clock: Clock) -> None:
    rate = Rate(10, clock)

    clock.now += 3_600

    assert rate.available() == 10


def test_what_was_spent_comes_back_at_the_rate(clock: Clock) -> None:
    rate = Rate(10, clock)

    rate.spend(10)
    at_once = rate.available()
    clock.now += 0.5

    assert at_once == 0
    assert rate.available() == 5


def test_a_whole_token_is_waited_for_exactly(clock: Clock) -> None:
    rate = Rate(4, clock)
    rate.spend(4)

    clock.now += rate.seconds_until_one()

    assert rate.seconds_until_one() == 0
    assert rate.available() == 1


def test_waiting_for_a_token_ends_although_sums_of_floats_are_not_exact(clock: Clock) -> None:
    rate = Rate(10, clock)
    taken = 0

    for _ in range(1_000):
        clock.now += rate.seconds_until_one()
        if rate.available():
            rate.spend(1)
            taken += 1

    assert taken >= 500


def test_less_than_one_a_second_still_lets_one_through(clock: Clock) -> None:
    rate = Rate(0.1, clock)

    rate.spend(1)
    wait = rate.seconds_until_one()
    clock.now += 10

    assert wait == pytest.approx(10)
    assert rate.available() == 1


def test_what_is_taken_after_a_long_wait_is_paid_from_a_full_bucket_and_not_from_the_time_waited(clock: Clock) -> None:
    rate = Rate(10, clock)

    wanted = rate.available()
    clock.now += 3_600
    rate.spend(wanted)

    assert rate.available() == 0


def test_overspending_is_paid_back(clock: Clock) -> None:
    rate = Rate(10, clock)

    rate.spend(25)
    clock.now += 1
    after_one = rate.available()
    clock.now += 1

    assert after_one <= 0
    assert rate.available() == 5


def test_no_more_than_the_rate_and_one_burst_in_any_time(clock: Clock) -> None:
    rate, taken = Rate(7, clock), 0

    for _ in range(1_000):
        clock.now += 0.01
        while rate.available():
            rate.spend(1)
            taken += 1

    assert 70 <= taken <= 70 + 7


@pytest.mark.parametrize("per_second", [0, -1])
def test_a_rate_that_lets_nothing_through_is_refused(per_second: float) -> None:
    with pytest.raises(ValueError, match="never lets anything through"):
        Rate(per_second)
