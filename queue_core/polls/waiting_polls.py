"""The waiting polls of this process, and which of them to wake. Pure: uses no store and no clock.

A poll stays registered until it returns, so one that was woken and found nothing keeps its place in the order.
"""

import asyncio
from collections.abc import Iterator

from tideq.queue_core.circuits import ALL_TYPES, CircuitState
from tideq.queue_core.lanes import serves, task_type_of


class WaitingPoll:
    """One poll. Its profile may be empty until the first claim has returned it."""

    def __init__(self, worker_id: str, profile: str, wanted: int) -> None:
        self.worker_id = worker_id
        self.profile = profile
        self.wanted = wanted
        self.is_eligible = True
        """Whether the worker may get tasks: an unhealthy worker's poll waits, but must not use up a wake-up."""
        self.circuits: dict[str, CircuitState] = {}
        """The worker's circuits by task type, or `*` for all types."""
        self.is_asleep = False
        self.has_ended = False
        self._woken = asyncio.Event()

    @property
    def is_woken(self) -> bool:
        return self._woken.is_set()

    def is_blocked(self, signature: str) -> bool:
        circuit = self._circuit(signature)
        return circuit is not None and circuit.is_open

    def is_on_trial(self, signature: str) -> bool:
        """A worker on trial may have no trial left, so other polls must be woken as well."""
        circuit = self._circuit(signature)
        return circuit is not None and not circuit.is_open

    def wake(self) -> None:
        self._woken.set()

    def end(self) -> None:
        """The poll returns without another claim."""
        self.has_ended = True
        self._woken.set()

    def sleep_again(self) -> None:
        """To be called before a claim: a wake-up during the claim is not lost."""
        self._woken.clear()

    async def wait(self, seconds: float) -> bool:
        """Wait until woken or the time is up; returns whether it was woken."""
        self.is_asleep = not self._woken.is_set()
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        finally:
            self.is_asleep = False
        return True

    def _circuit(self, signature: str) -> CircuitState | None:
        return self.circuits.get(ALL_TYPES) or self.circuits.get(task_type_of(signature))


class WaitingPolls:
    def __init__(self) -> None:
        self._polls: dict[WaitingPoll, None] = {}

    def __len__(self) -> int:
        return len(self._polls)

    @property
    def sleeping_count(self) -> int:
        return sum(poll.is_asleep for poll in self._polls)

    def add(self, poll: WaitingPoll) -> None:
        self._polls[poll] = None

    def remove(self, poll: WaitingPoll) -> None:
        self._polls.pop(poll, None)

    def wake_for(self, signature: str, ready_count: int) -> int:
        """Wake polls in the order of arrival until they want as many tasks as are ready; returns how many."""
        woken = 0
        for poll in self._unwoken():
            if ready_count <= 0:
                break
            if not poll.profile:
                # The first claim is running and may have been too early: whatever the worker serves, it claims again.
                poll.wake()
            elif poll.is_eligible and serves(poll.profile, signature) and not poll.is_blocked(signature):
                poll.wake()
                ready_count -= 0 if poll.is_on_trial(signature) else poll.wanted
                woken += 1
        return woken

    def wake_one(self) -> None:
        for poll in self._unwoken():
            poll.wake()
            return

    def wake_worker(self, worker_id: str) -> None:
        for poll in self._polls:
            if poll.worker_id == worker_id:
                poll.wake()

    def wake_claiming(self) -> None:
        """Wake polls whose claim is running and may have been too early: they claim once more before they sleep."""
        for poll in self._unwoken():
            if not poll.is_asleep:
                poll.wake()

    def end_all(self) -> None:
        for poll in self._polls:
            poll.end()

    def _unwoken(self) -> Iterator[WaitingPoll]:
        return (poll for poll in self._polls if not poll.is_woken)
