"""Who waits for work in this process, and whom to wake for what. Pure: it knows no store and no clock.

A waiter stays in the room for its whole poll, so one that was woken and found nothing keeps its place in line.
"""

import asyncio
from collections.abc import Iterator

from tideq.queue_core.circuits import ALL_TYPES, HeldBack
from tideq.queue_core.lanes import serves, task_type_of


class WaitingPoll:
    """One poll. Its profile may be empty until its first claim has told what the worker serves."""

    def __init__(self, worker_id: str, profile: str, wanted: int) -> None:
        self.worker_id = worker_id
        self.profile = profile
        self.wanted = wanted
        self.is_eligible = True
        """Whether its worker is given new work at all: an unhealthy one waits, but must not use up a wake-up."""
        self.held_back: dict[str, HeldBack] = {}
        """By task type, or `*` for all: its worker gets nothing of one that is open."""
        self.is_asleep = False
        self._bell = asyncio.Event()

    @property
    def is_woken(self) -> bool:
        return self._bell.is_set()

    def is_blocked(self, signature: str) -> bool:
        circuit = self._circuit(signature)
        return circuit is not None and circuit.is_open

    def is_on_trial(self, signature: str) -> bool:
        """It may have all the trials it is allowed in hand: others are to be woken as well."""
        circuit = self._circuit(signature)
        return circuit is not None and not circuit.is_open

    def wake(self) -> None:
        self._bell.set()

    def sleep_again(self) -> None:
        """To be called before looking for work: what arrives from now on is not missed."""
        self._bell.clear()

    async def wait(self, seconds: float) -> bool:
        """Until woken or the time is up, whichever comes first; says whether it was woken."""
        self.is_asleep = not self._bell.is_set()
        try:
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        except TimeoutError:
            return False
        finally:
            self.is_asleep = False
        return True

    def _circuit(self, signature: str) -> HeldBack | None:
        return self.held_back.get(ALL_TYPES) or self.held_back.get(task_type_of(signature))


class WaitingPolls:
    def __init__(self) -> None:
        self._waiters: dict[WaitingPoll, None] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def sleeping_count(self) -> int:
        return sum(waiter.is_asleep for waiter in self._waiters)

    def enter(self, waiter: WaitingPoll) -> None:
        self._waiters[waiter] = None

    def leave(self, waiter: WaitingPoll) -> None:
        self._waiters.pop(waiter, None)

    def wake_for(self, signature: str, ready_count: int) -> int:
        """Wake as many sleepers, first come first served, as it takes to carry off what is ready."""
        woken = 0
        for waiter in self._sleepers():
            if ready_count <= 0:
                break
            if not waiter.profile:
                # Its first claim is under way and may have looked too early: whatever it serves, it looks once more.
                waiter.wake()
            elif waiter.is_eligible and serves(waiter.profile, signature) and not waiter.is_blocked(signature):
                waiter.wake()
                ready_count -= 0 if waiter.is_on_trial(signature) else waiter.wanted
                woken += 1
        return woken

    def wake_one(self) -> None:
        for waiter in self._sleepers():
            waiter.wake()
            return

    def wake_worker(self, worker_id: str) -> None:
        for waiter in self._waiters:
            if waiter.worker_id == worker_id:
                waiter.wake()

    def wake_looking(self) -> None:
        """Those that are looking just now, perhaps a moment too early: they look once more before they sleep."""
        for waiter in self._sleepers():
            if not waiter.is_asleep:
                waiter.wake()

    def wake_all(self) -> None:
        for waiter in self._waiters:
            waiter.wake()

    def _sleepers(self) -> Iterator[WaitingPoll]:
        return (waiter for waiter in self._waiters if not waiter.is_woken)
