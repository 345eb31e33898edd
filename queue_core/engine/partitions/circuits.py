"""Circuits of a queue with several partitions: a worker's results count wherever they fell.

Every partition counts its own and tells a claim how its circuits stand; the claim adds up, and writes what it decides
to all partitions. So a circuit opens with the worker's next claim. Trials are counted where they are held: of claims of
one worker at the same instant, one has its turn to give trials, and looks again before it does. Whose turn it is, the
worker's home knows; while that is away two may both give the last one.
"""

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tideq.queue_core.circuits import ALL_TYPES, HeldBack
from tideq.queue_core.engine.partitions.health import Health
from tideq.queue_core.engine.partitions.sampling import home_of
from tideq.queue_core.engine.polls import Peek, Standing
from tideq.queue_core.engine.queue import Queue
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.settings import Circuit

Standings = Mapping[int, Standing]
"""Of one task type, by partition."""


class Verdict(NamedTuple):
    left: dict[str, int]
    """How many tasks a worker may be given now, of each type that is held back."""
    held_back: tuple[HeldBack, ...]

    @property
    def on_trial(self) -> set[str]:
        """Types of which it may be given some to try."""
        return {scope for scope, count in self.left.items() if count > 0}

    def without_trials(self) -> "Verdict":
        """For a claim whose turn it is not."""
        return self._replace(left=dict.fromkeys(self.left, 0))

    def shares(self, counts: Mapping[str, int] | None = None) -> str:
        """As `may_take.lua` takes it: so many of each type, or all that are left."""
        chosen = self.left if counts is None else {scope: counts.get(scope, 0) for scope in self.left}
        return " ".join(f"{scope} share {count}" for scope, count in chosen.items())


CLOSED = Verdict({}, ())


class Decision(NamedTuple):
    task_type: str
    kind: str
    until_ms: int = 0


class Turn:
    """Of one claim, to give trials to its worker. Asked for where it finds any to give, which is rare."""

    def __init__(self, home: Queue | None, worker_id: str) -> None:
        """Without a home, because it is away, nobody waits for anybody."""
        self._home = home
        self._worker_id = worker_id
        self._token = secrets.token_hex(8)
        self.is_asked = False
        self.is_mine = False

    async def ask(self) -> bool:
        self.is_asked = self.is_mine = True
        if self._home is not None:
            try:
                self.is_mine = await self._home.trial_turn(self._worker_id, self._token)
            except Unavailable:
                self._home = None
        return self.is_mine

    async def end(self) -> None:
        """What cannot be given back now runs out."""
        if self._home is not None and self.is_mine:
            with contextlib.suppress(Unavailable):
                await self._home.trial_turn(self._worker_id, self._token, is_over=True)


class Circuits:
    def __init__(self, parts: Sequence[Queue], health: Health, settings: Circuit) -> None:
        self._parts = parts
        self._health = health
        self._settings = settings

    def turn(self, worker_id: str) -> Turn:
        home = home_of(worker_id, len(self._parts))
        return Turn(self._parts[home] if self._health.is_well(home) else None, worker_id)

    async def verdict(self, worker_id: str, peeks: Mapping[int, Peek]) -> Verdict:
        """Costs nothing where no circuit is open and nothing failed lately."""
        by_type: dict[str, dict[int, Standing]] = {}
        for partition, peek in peeks.items():
            for standing in peek.standings:
                by_type.setdefault(standing.task_type, {})[partition] = standing
        if not by_type:
            return CLOSED
        now_ms = max(peek.now_ms for peek in peeks.values())
        decisions = [*self._closed(by_type), *await self._broken(worker_id, by_type, now_ms)]
        open_until = {each.task_type: each.until_ms for each in decisions if each.kind == "open"}
        for task_type, standings in by_type.items():
            if ends := [each.amount for each in standings.values() if each.kind == "open"]:
                open_until[task_type] = max(ends)
                if len(ends) < len(peeks):
                    decisions.append(Decision(task_type, "open", max(ends)))
        if decisions:
            await self._write(worker_id, decisions)
        closed = {each.task_type for each in decisions if each.kind == "closed"}
        on_trial = self._trials_left({each: by_type[each] for each in by_type.keys() - open_until.keys() - closed})
        held_back = [*(HeldBack(*each) for each in open_until.items()), *(HeldBack(each, None) for each in on_trial)]
        return Verdict(
            dict.fromkeys(open_until, 0) | on_trial, tuple(sorted(held_back, key=lambda each: each.task_type))
        )

    def _closed(self, by_type: Mapping[str, Standings]) -> list[Decision]:
        """Those whose trials ended well."""
        return [
            Decision(task_type, "closed")
            for task_type, standings in by_type.items()
            if not any(each.kind == "open" for each in standings.values())
            and sum(each.amount for each in _on_trial(standings)) >= self._settings.trials
        ]

    def _trials_left(self, by_type: Mapping[str, Standings]) -> dict[str, int]:
        left: dict[str, int] = {}
        for task_type, standings in by_type.items():
            if trials := _on_trial(standings):
                left[task_type] = max(self._settings.trials - sum(each.amount + each.held for each in trials), 0)
        return left

    async def _broken(self, worker_id: str, by_type: Mapping[str, Standings], now_ms: int) -> list[Decision]:
        """Closed circuits that are to open. Partitions without a failure are asked only where the others would do."""
        found: list[Decision] = []
        for task_type, standings in by_type.items():
            if any(each.kind != "failing" for each in standings.values()):
                continue
            good, bad = sum(each.good for each in standings.values()), sum(each.bad for each in standings.values())
            if self._is_broken(good, bad):
                others = [each for each in self._health.well if each not in standings]
                counts = await self._results(others, worker_id, task_type)
                if self._is_broken(good + sum(each[0] for each in counts), bad + sum(each[1] for each in counts)):
                    found.append(Decision(task_type, "open", now_ms + self._settings.open_ms))
        return found

    async def _results(self, partitions: Sequence[int], worker_id: str, task_type: str) -> list[tuple[int, int]]:
        told = await self._health.ask(partitions, lambda each: self._parts[each].results(worker_id, [task_type]))
        return [each[0] for each in told.values() if not isinstance(each, Exception)]

    def _is_broken(self, good: int, bad: int) -> bool:
        return bad >= self._settings.failures and bad > good

    async def _write(self, worker_id: str, decisions: Sequence[Decision]) -> None:
        """One that is away or does not know the worker learns it from the next claim that finds it so."""
        first = min(self._health.well, default=0)
        await self._health.ask(
            self._health.well, lambda each: self._parts[each].decide(worker_id, decisions, counts=each == first)
        )


def gives_trials(verdict: Verdict, task_types: Sequence[str]) -> bool:
    """To a claim that found tasks of these types."""
    on_trial = verdict.on_trial
    return bool(task_types) and (ALL_TYPES in on_trial or not on_trial.isdisjoint(task_types))


def _on_trial(standings: Standings) -> list[Standing]:
    return [each for each in standings.values() if each.kind == "trial"]
