"""Decides when a failed call is repeated, and for how long a caller waits. Pure: time and chance are arguments.

After a failure that may hide a success only repeatable calls are repeated: submissions have an idempotency key, most
other calls set a state.
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
    """Waits `base · multiplier^n`, at most `cap`, less up to half by chance, until `deadline_seconds` have passed.

    A `Retry-After` of the service is waited for in addition, so that clients do not return all at once. No attempt
    begins after the deadline; the last error is raised instead.
    """

    deadline_seconds: float = 30.0
    base_seconds: float = 0.1
    multiplier: float = 2.0
    cap_seconds: float = 5.0

    def delay(
        self, error: TideqError, *, attempts: int, elapsed: float, chance: float, is_repeatable: bool = True
    ) -> float | None:
        """Returns the seconds until the next attempt, or None to give up. `chance` lies in 0 … 1."""
        if not error.is_transient or (error.may_have_run and not is_repeatable):
            return None
        growth = self.multiplier ** min(attempts - 1, MAX_DOUBLINGS)
        delay = min(self.base_seconds * growth, self.cap_seconds) * (1 - chance / 2)
        if error.retry_after is not None:
            delay += error.retry_after
        return delay if elapsed + delay <= self.deadline_seconds else None

    def within(self, seconds: float) -> "RetryPolicy":
        """Returns the policy with a deadline of at most `seconds`."""
        return msgspec.structs.replace(self, deadline_seconds=min(seconds, self.deadline_seconds))


NO_RETRIES = RetryPolicy(deadline_seconds=0)


class RetryState:
    """The attempts at one call: their number, their start, and whether one may have been carried out."""

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
        self.may_have_run = False

    def result_of_refusal(self, call: Call[T], error: TideqError) -> T | None:
        """Returns the result, if this refusal shows that an earlier attempt was carried out."""
        return call.result_of_refusal(error) if self.may_have_run and isinstance(error, Refusal) else None

    def delay(self, error: TideqError, *, is_repeatable: bool = True) -> float | None:
        """Returns the seconds until the next attempt, or None to give up."""
        self._count += 1
        self.may_have_run |= error.may_have_run
        elapsed = self._now() - self._began
        delay = self._policy.delay(
            error, attempts=self._count, elapsed=elapsed, chance=self._chance(), is_repeatable=is_repeatable
        )
        if delay is None and self._count > 1:
            error.add_note(f"gave up after {self._count} attempts in {elapsed:.1f} s")
        return delay


MAX_POLL_SECONDS = 30.0
"""The longest wait that the service accepts in one request."""
PAUSE_SECONDS = 0.1


class Deadline:
    """Starts with its creation; None never ends."""

    def __init__(self, seconds: float | None, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._end = None if seconds is None else now() + seconds

    @property
    def left(self) -> float | None:
        return None if self._end is None else max(self._end - self._now(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.left == 0.0

    @property
    def next_poll(self) -> float:
        """Seconds to wait in the next request."""
        left = self.left
        return MAX_POLL_SECONDS if left is None else min(left, MAX_POLL_SECONDS)

    @property
    def pause_seconds(self) -> float:
        """Pause before the next request: a service that is closing answers at once and must not be polled in a loop."""
        left = self.left
        return PAUSE_SECONDS if left is None else min(left, PAUSE_SECONDS)
