"""The oracle's circuit breaker of one worker and type, from SPEC section 5. Outcomes count in steps of ten seconds."""

from collections import Counter

from tests.model import situation as given

STEP_MS = 10_000


class Circuit:
    """Of one worker and type: its outcomes while closed; else open until an instant, and then on trial."""

    def __init__(self, fired: Counter[str]) -> None:
        self.fired = fired
        self.outcomes: list[tuple[int, bool]] = []
        self.open_until: int | None = None
        self.trials_passed: int | None = None

    def left(self, now: int, held_count: int) -> float:
        """How many more tasks of the type the worker may be given, which holds so many of it."""
        self._begin_trial(now)
        if self.open_until is not None:
            return 0
        passed = self.trials_passed
        return float("inf") if passed is None else max(0, given.CIRCUIT_TRIALS - passed - held_count)

    def note(self, now: int, is_good: bool) -> None:
        self._begin_trial(now)
        if self.open_until is not None:
            return
        if self.trials_passed is not None:
            self._try(now, is_good)
            return
        self.outcomes.append((now // STEP_MS * STEP_MS, is_good))
        counted = [good for at, good in self.outcomes if at > now - given.CIRCUIT_WINDOW_MS]
        bad_count = counted.count(False)
        if not is_good and bad_count >= given.CIRCUIT_FAILURES and 2 * bad_count > len(counted):
            self._open(now)

    def _begin_trial(self, now: int) -> None:
        if self.open_until is not None and self.open_until <= now:
            self.open_until, self.trials_passed = None, 0

    def _try(self, now: int, is_good: bool) -> None:
        self.trials_passed = (self.trials_passed or 0) + 1 if is_good else None
        if not is_good:
            self._open(now)
        elif self.trials_passed == given.CIRCUIT_TRIALS:
            self.trials_passed = None
            self.fired["circuit → closed"] += 1

    def _open(self, now: int) -> None:
        self.outcomes, self.open_until = [], now + given.CIRCUIT_OPEN_MS
        self.fired["circuit → open"] += 1
