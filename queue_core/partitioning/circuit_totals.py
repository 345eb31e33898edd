"""Circuits of a queue with several partitions: a worker's results count in whichever partition they occurred.

Every partition counts its own results and returns them with a peek; the claim adds them up and writes its decision to
all partitions. So a circuit opens with the worker's next claim. Of several claims of one
worker at the same instant, only the one that has the turn gives trials, after reading all partitions again. The turn is
kept in the worker's home partition. Limit: while that is away, two claims may both give the last trial.
"""

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tideq.queue_core.circuits import ALL_TYPES, CircuitState
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.partition import Partition
from tideq.queue_core.partitioning.partition_health import PartitionHealth
from tideq.queue_core.partitioning.partition_sampler import home_of
from tideq.queue_core.polls.poll import CircuitResults, Peek
from tideq.queue_core.settings import Circuit

ResultsByPartition = Mapping[int, CircuitResults]
"""Of one task type, by partition."""


class CircuitVerdict(NamedTuple):
    left: dict[str, int]
    """How many tasks of each type with an open circuit, or one on trial, the worker may get now."""
    circuits: tuple[CircuitState, ...]

    @property
    def on_trial(self) -> set[str]:
        """Types of which it may be given some to try."""
        return {scope for scope, count in self.left.items() if count > 0}

    def without_trials(self) -> "CircuitVerdict":
        """For a claim whose turn it is not."""
        return self._replace(left=dict.fromkeys(self.left, 0))

    def shares(self, counts: Mapping[str, int] | None = None) -> str:
        """As `claim_allowance.lua` takes it: so many tasks of each type, or all that are left."""
        chosen = self.left if counts is None else {scope: counts.get(scope, 0) for scope in self.left}
        return " ".join(f"{scope} share {count}" for scope, count in chosen.items())


CLOSED = CircuitVerdict({}, ())


class Decision(NamedTuple):
    task_type: str
    kind: str
    until_ms: int = 0


class Turn:
    """One claim's turn to give trials to its worker; requested only by a claim that finds trials to give."""

    def __init__(self, home: Partition | None, worker_id: str) -> None:
        """`home` is None while the home partition is away: then every claim has the turn."""
        self._home = home
        self._worker_id = worker_id
        self._token = secrets.token_hex(8)
        self.is_requested = False
        self.is_mine = False

    async def request(self) -> bool:
        self.is_requested = self.is_mine = True
        if self._home is not None:
            try:
                self.is_mine = await self._home.trial_turn(self._worker_id, self._token)
            except Unavailable:
                self._home = None
        return self.is_mine

    async def end(self) -> None:
        """A turn that cannot be given back now expires."""
        if self._home is not None and self.is_mine:
            with contextlib.suppress(Unavailable):
                await self._home.trial_turn(self._worker_id, self._token, is_over=True)


class CircuitTotals:
    def __init__(self, parts: Sequence[Partition], health: PartitionHealth, settings: Circuit) -> None:
        self._parts = parts
        self._health = health
        self._settings = settings

    def turn(self, worker_id: str) -> Turn:
        home = home_of(worker_id, len(self._parts))
        return Turn(self._parts[home] if self._health.is_up(home) else None, worker_id)

    async def verdict(self, worker_id: str, peeks: Mapping[int, Peek]) -> CircuitVerdict:
        """Costs nothing where no circuit is open and nothing failed lately."""
        by_type: dict[str, dict[int, CircuitResults]] = {}
        for partition, peek in peeks.items():
            for results in peek.circuit_results:
                by_type.setdefault(results.task_type, {})[partition] = results
        if not by_type:
            return CLOSED
        now_ms = max(peek.now_ms for peek in peeks.values())
        decisions = [*self._closed(by_type), *await self._broken(worker_id, by_type, now_ms)]
        open_until = {each.task_type: each.until_ms for each in decisions if each.kind == "open"}
        for task_type, results in by_type.items():
            if ends := [each.amount for each in results.values() if each.kind == "open"]:
                open_until[task_type] = max(ends)
                if len(ends) < len(peeks):
                    decisions.append(Decision(task_type, "open", max(ends)))
        if decisions:
            await self._write(worker_id, decisions)
        closed = {each.task_type for each in decisions if each.kind == "closed"}
        on_trial = self._trials_left({each: by_type[each] for each in by_type.keys() - open_until.keys() - closed})
        circuits = [
            *(CircuitState(*each) for each in open_until.items()),
            *(CircuitState(each, None) for each in on_trial),
        ]
        return CircuitVerdict(
            dict.fromkeys(open_until, 0) | on_trial, tuple(sorted(circuits, key=lambda each: each.task_type))
        )

    def _closed(self, by_type: Mapping[str, ResultsByPartition]) -> list[Decision]:
        """Circuits whose trials ended well."""
        return [
            Decision(task_type, "closed")
            for task_type, results in by_type.items()
            if not any(each.kind == "open" for each in results.values())
            and sum(each.amount for each in _on_trial(results)) >= self._settings.trials
        ]

    def _trials_left(self, by_type: Mapping[str, ResultsByPartition]) -> dict[str, int]:
        left: dict[str, int] = {}
        for task_type, results in by_type.items():
            if trials := _on_trial(results):
                left[task_type] = max(self._settings.trials - sum(each.amount + each.held for each in trials), 0)
        return left

    async def _broken(self, worker_id: str, by_type: Mapping[str, ResultsByPartition], now_ms: int) -> list[Decision]:
        """Closed circuits that must open.

        Partitions without a failure are read only where the results of the others would open the circuit.
        """
        found: list[Decision] = []
        for task_type, results in by_type.items():
            if any(each.kind != "failing" for each in results.values()):
                continue
            good, bad = sum(each.good for each in results.values()), sum(each.bad for each in results.values())
            if self._is_broken(good, bad):
                others = [each for each in self._health.up if each not in results]
                counts = await self._results(others, worker_id, task_type)
                if self._is_broken(good + sum(each[0] for each in counts), bad + sum(each[1] for each in counts)):
                    found.append(Decision(task_type, "open", now_ms + self._settings.open_ms))
        return found

    async def _results(self, partitions: Sequence[int], worker_id: str, task_type: str) -> list[tuple[int, int]]:
        answers = await self._health.call(partitions, lambda each: self._parts[each].results(worker_id, [task_type]))
        return [each[0] for each in answers.values() if not isinstance(each, Exception)]

    def _is_broken(self, good: int, bad: int) -> bool:
        return bad >= self._settings.failures and bad > good

    async def _write(self, worker_id: str, decisions: Sequence[Decision]) -> None:
        """A partition that is away or has no such worker gets the decision with a later claim that finds it missing."""
        first = min(self._health.up, default=0)
        await self._health.call(
            self._health.up, lambda each: self._parts[each].set_circuits(worker_id, decisions, counts=each == first)
        )


def gives_trials(verdict: CircuitVerdict, task_types: Sequence[str]) -> bool:
    """Whether a claim that found tasks of these types gives trials."""
    on_trial = verdict.on_trial
    return bool(task_types) and (ALL_TYPES in on_trial or not on_trial.isdisjoint(task_types))


def _on_trial(results: ResultsByPartition) -> list[CircuitResults]:
    return [each for each in results.values() if each.kind == "trial"]
