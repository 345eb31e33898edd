"""Retry delay, and timeout of the next attempt. Pure.

The scripts hold the same arithmetic in `scripts/include/retry_delay.lua`; a test proves the two equal.
"""

import math

import msgspec

JITTER = 0.2
"""Delays are spread by up to this share up and down, so that tasks that failed together do not return together."""

SLOW_DOWN_CODES = frozenset({"RATE_LIMIT", "TEMPORARY_UNAVAILABLE"})
"""Errors of an overloaded dependency: the delay doubles."""

MORE_TIME_CODES = frozenset({"TIMEOUT", "OUT_OF_MEMORY"})
"""Errors of an attempt that ran out of resources: the next timeout is half as long again."""

MAX_RAISED_TIMEOUT_MS = 3_600_000
MAX_RETRIES = 1_000


class Backoff(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    base_ms: int = 10_000
    multiplier: float = 2.0
    cap_ms: int = 21_600_000


def delay_ms(backoff: Backoff, retry: int, code: str = "", jitter: float = 0.0) -> int:
    """Returns the wait before retry number `retry`, counted from 0; `jitter` lies in -1 … 1."""
    # The bound keeps the power finite; any sensible multiplier exceeds any cap long before.
    delay = backoff.base_ms * backoff.multiplier ** min(retry, 64)
    if code in SLOW_DOWN_CODES:
        delay *= 2
    return math.floor(min(delay, backoff.cap_ms) * (1 + JITTER * jitter))


def next_timeout_ms(timeout_ms: int, code: str, max_execution_ms: int = MAX_RAISED_TIMEOUT_MS) -> int:
    """Returns the next attempt's timeout; never lower than the last, even if that was above the maximum."""
    if code not in MORE_TIME_CODES:
        return timeout_ms
    return max(timeout_ms, min(timeout_ms * 3 // 2, MAX_RAISED_TIMEOUT_MS, max_execution_ms))
