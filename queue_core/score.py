"""Rank and score arithmetic: the position of a task as one number. Pure.

A negative score is a *ready* task: `rank - (lane + 1) * 2^42`, so each lane is a contiguous band and inside
it the lower rank goes first. A positive score is a task *hidden* until that Unix millisecond. The scripts
hold the same arithmetic in `scripts/include/band.lua`; a test proves the two equal.
"""

BAND_WIDTH = 2**42
MAX_RANK = BAND_WIDTH - 1
"""Ranks are milliseconds since 1970 plus an offset: the last one lies in the year 2109."""

MAX_LANES = 2047
"""Lane 2046 reaches down to -2047 * 2^42, above -2^53: every score is an exact integer in a double."""


def rank(eligible_at_ms: int, offset_ms: int, head_start_ms: int = 0) -> int:
    """Returns the task's place in the order of all tasks. All tasks age alike, so it is fixed at submission."""
    return eligible_at_ms + offset_ms - head_start_ms


def is_rank(value: int) -> bool:
    return 0 <= value <= MAX_RANK


def ready_score(lane: int, rank: int) -> int:
    return rank - (lane + 1) * BAND_WIDTH


def lane_of(score: int) -> int:
    """Returns the lane of a ready (negative) score."""
    return -(score // BAND_WIDTH) - 1


def rank_of(score: int) -> int:
    """Returns the rank of a ready (negative) score."""
    return score % BAND_WIDTH


def queue_score(rank: int, now_ms: int) -> float:
    """Returns the public `queue_score`: the priority's offset minus the age, in seconds. Lower runs first."""
    return (rank - now_ms) / 1000
