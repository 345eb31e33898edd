"""How long a task waits before it is tried again, and how long the next try may take. Pure.

The scripts hold the same arithmetic in `scripts/include/retry_delay.lua`; a test proves the two equal.
"""

import math

import msgspec

JITTER = 0.2
"""Delays are spread by up to this share either way, so that what failed together does not return together."""

SLOW_DOWN_CODES = frozenset({"RATE_LIMIT", "TEMPORARY_UNAVAILABLE"})
"""The other side asked for air: the delay doubles."""

MORE_TIME_CODES = frozenset({"TIMEOUT", "OUT_OF_MEMORY"})
"""The attempt was cut short: the next one gets half as much time again."""

MAX_RAISED_TIMEOUT_MS = 3_600_000
MAX_RETRIES = 1_000


class Backoff(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    base_ms: int = 10_000
    multiplier: float = 2.0
    cap_ms: int = 21_600_000


def delay_ms(backoff: Backoff, retry: int, code: str = "", jitter: float = 0.0) -> int:
    """The wait before retry number `retry`, counted from 0; `jitter` lies in -1 … 1."""
    # Past this exponent any sensible multiplier is over any cap; it keeps the power finite.
    delay = backoff.base_ms * backoff.multiplier ** min(retry, 64)
    if code in SLOW_DOWN_CODES:
        delay *= 2
    return math.floor(min(delay, backoff.cap_ms) * (1 + JITTER * jitter))


def next_timeout_ms(timeout_ms: int, code: str, max_execution_ms: int = MAX_RAISED_TIMEOUT_MS) -> int:
    """The next attempt's timeout. It is never lowered, even where it was longer than the ceiling before."""
    if code not in MORE_TIME_CODES:
        return timeout_ms
    return max(timeout_ms, min(timeout_ms * 3 // 2, MAX_RAISED_TIMEOUT_MS, max_execution_ms))
