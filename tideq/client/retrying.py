"""When a call that failed is made again. The policy is pure: time and chance are arguments.

A failure that left it open whether the call was carried out is met by repeating only calls that may be repeated:
submissions carry a key, most others ask for a state rather than a step.
"""

import random
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from tideq.client.calls.base import Call
from tideq.client.errors import Refusal, TideqError
from tideq.client.options import StrictStruct

T = TypeVar("T")

MAX_DOUBLINGS = 32


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, metaclass=StrictStruct):
    """Waits `base · multiplier^n`, at most `cap`, of which chance takes up to half, until `deadline_seconds` are over.

    Where the service names a time itself (`Retry-After`), that is waited for, and a little more, so that not everyone
    comes back at once. No attempt begins after the deadline; the last error is raised instead.
    """

    deadline_seconds: float = 30.0
    base_seconds: float = 0.1
    multiplier: float = 2.0
    cap_seconds: float = 5.0

    def delay(
        self, error: TideqError, *, attempts: int, elapsed: float, chance: float, is_repeatable: bool = True
    ) -> float | None:
        """Seconds until the next attempt, or None to give up; `attempts` were made, `chance` lies in 0 … 1."""
        if not error.may_pass or (error.may_be_done and not is_repeatable):
            return None
        growth = self.multiplier ** min(attempts - 1, MAX_DOUBLINGS)
        delay = min(self.base_seconds * growth, self.cap_seconds) * (1 - chance / 2)
        if error.retry_after is not None:
            delay += error.retry_after
        return delay if elapsed + delay <= self.deadline_seconds else None

    def within(self, seconds: float) -> "RetryPolicy":
        """The same, for a caller who waits no longer than this."""
        return msgspec.structs.replace(self, deadline_seconds=min(seconds, self.deadline_seconds))


NO_RETRIES = RetryPolicy(deadline_seconds=0)


class Attempts:
    """The attempts at one call: how many, since when, and whether one of them may have been carried out."""

    def __init__(
        self,
        policy: RetryPolicy,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._policy = policy
        self._now = now
        self._chance = chance
        self._began = now()
        self._count = 0
        self.may_be_done = False
        """By one of them."""

    def settled(self, call: Call[T], error: TideqError) -> T | None:
        """The answer, where this refusal shows that an earlier attempt was carried out."""
        return call.settled(error) if self.may_be_done and isinstance(error, Refusal) else None

    def delay(self, error: TideqError, *, is_repeatable: bool = True) -> float | None:
        """Seconds until the next one, or None: there is none."""
        self._count += 1
        self.may_be_done |= error.may_be_done
        elapsed = self._now() - self._began
        delay = self._policy.delay(
            error, attempts=self._count, elapsed=elapsed, chance=self._chance(), is_repeatable=is_repeatable
        )
        if delay is None and self._count > 1:
            error.add_note(f"gave up after {self._count} attempts in {elapsed:.1f} s")
        return delay
