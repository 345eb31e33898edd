"""Score arithmetic: bands that never meet, exact in a double."""

from hypothesis import given
from hypothesis import strategies as st

from tideq.queue_core.score import (
    BAND_WIDTH,
    MAX_LANES,
    MAX_RANK,
    is_rank,
    lane_of,
    queue_score,
    rank,
    rank_of,
    ready_score,
)

lanes = st.integers(0, MAX_LANES - 1)
ranks = st.integers(0, MAX_RANK)


@given(lanes, ranks)
def test_a_ready_score_gives_back_its_lane_and_rank(lane: int, rank: int) -> None:
    score = ready_score(lane, rank)

    assert (lane_of(score), rank_of(score)) == (lane, rank)


@given(lanes, ranks)
def test_a_ready_score_is_negative_and_exact_in_a_double(lane: int, rank: int) -> None:
    score = ready_score(lane, rank)

    assert score < 0
    assert int(float(score)) == score


@given(lanes, ranks, ranks)
def test_inside_a_lane_the_lower_rank_goes_first(lane: int, one: int, other: int) -> None:
    assert (ready_score(lane, one) < ready_score(lane, other)) == (one < other)


def test_the_lowest_score_of_the_last_lane_is_above_minus_two_to_the_53() -> None:
    assert ready_score(MAX_LANES - 1, 0) == -MAX_LANES * BAND_WIDTH > -(2**53)


def test_a_rank_is_the_eligible_instant_plus_the_offset_less_the_head_start() -> None:
    assert rank(1_000_000, 200_000_000, 5_000) == 200_995_000


def test_ranks_outside_the_band_are_no_ranks() -> None:
    assert [is_rank(value) for value in (-1, 0, MAX_RANK, MAX_RANK + 1)] == [False, True, True, False]


def test_the_shown_score_is_offset_minus_age_in_seconds() -> None:
    submitted_ms, age_ms = 1_700_000_000_000, 30_000

    assert queue_score(rank(submitted_ms, 100_000_000), submitted_ms + age_ms) == 100_000 - 30
