"""Backoff arithmetic, without a store."""

import pytest

from tideq.queue_core.retry_policy import Backoff, delay_ms, next_timeout_ms


@pytest.mark.parametrize(
    ("retry", "expected"),
    [(0, 10_000), (1, 20_000), (5, 320_000), (11, 20_480_000), (12, 21_600_000), (900, 21_600_000)],
)
def test_the_delay_doubles_up_to_its_cap(retry: int, expected: int) -> None:
    assert delay_ms(Backoff(), retry) == expected


@pytest.mark.parametrize("code", ["RATE_LIMIT", "TEMPORARY_UNAVAILABLE"])
def test_a_plea_for_air_doubles_the_delay_and_never_breaks_the_cap(code: str) -> None:
    assert delay_ms(Backoff(), 0, code) == 20_000
    assert delay_ms(Backoff(), 50, code) == Backoff().cap_ms


def test_jitter_spreads_by_a_fifth_either_way() -> None:
    assert [delay_ms(Backoff(), 0, jitter=jitter) for jitter in (-1.0, 0.0, 1.0)] == [8_000, 10_000, 12_000]


@pytest.mark.parametrize(
    ("timeout", "code", "expected"),
    [
        (600_000, "TIMEOUT", 900_000),
        (600_000, "OUT_OF_MEMORY", 900_000),
        (600_000, "", 600_000),
        (3_000_000, "TIMEOUT", 3_600_000),
        (7_200_000, "TIMEOUT", 7_200_000),
    ],
)
def test_a_cut_short_attempt_gets_half_as_much_time_again_up_to_an_hour(timeout: int, code: str, expected: int) -> None:
    assert next_timeout_ms(timeout, code) == expected


def test_a_timeout_is_not_raised_above_the_longest_execution() -> None:
    assert next_timeout_ms(600_000, "TIMEOUT", 700_000) == 700_000
    assert next_timeout_ms(600_000, "TIMEOUT", 500_000) == 600_000
