"""A claim over several partitions: peek at their heads, merge them by rank, claim each partition's share.

Up to eight partitions the order is exact as long as no other worker claims in between. A claim that another worker
overtook peeks again, so tasks are never taken out of order, only fewer than wanted. Of more than eight partitions a
claim peeks at eight random ones. All are read where these have too few tasks, with one claim in sixteen, and where the
worker has not been seen elsewhere for long. All are also read where limits are in force or the worker failed lately,
because the counts of every partition matter; then the claim takes what the ledger permits and the circuits leave.
"""

import contextlib
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tideq.queue_core.circuits import CircuitState
from tideq.queue_core.controls import WHOLE_QUEUE
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.fleet import most_urgent
from tideq.queue_core.partition import MAX_CLAIM_BYTES, Partition
from tideq.queue_core.partitioning.circuit_totals import CLOSED, CircuitTotals, CircuitVerdict, Turn, gives_trials
from tideq.queue_core.partitioning.head_merge import MergedHeads, Share, best_of, depth_for, scopes_of, shares, within
from tideq.queue_core.partitioning.ledger import PERMIT_MS, Grant, Ledger, Uses, counts_text
from tideq.queue_core.partitioning.partition_health import PartitionHealth
from tideq.queue_core.partitioning.partition_sampler import PartitionSampler
from tideq.queue_core.partitioning.worker_sync import WorkerSync
from tideq.queue_core.polls.poll import Head, Peek, Poll
from tideq.queue_core.task import Claim, ClaimedTask, Stop

MAX_ROUNDS = 4
"""Peeks of one claim: another worker may be faster, and a partition may have more tasks than its peek returned."""
NUMBER_BITS = 32
NEXT_TURN_MS = 250
"""How soon a claim looks again that met another which gives the same worker trials."""
NO_LIMITS = Grant("", {})


class Taken(NamedTuple):
    tasks: list[ClaimedTask]
    is_repeat: bool
    now_ms: int
    again_in_ms: int | None = None
    """When a limit, or another claim's turn to give trials, may let out more, where tasks were held back."""
    circuits: tuple[CircuitState, ...] = ()


class ClaimMerger:
    def __init__(
        self,
        parts: Sequence[Partition],
        health: PartitionHealth,
        worker_sync: WorkerSync,
        sampler: PartitionSampler,
        ledger: Ledger,
        circuits: CircuitTotals,
    ) -> None:
        self._parts = parts
        self._health = health
        self._worker_sync = worker_sync
        self._sampler = sampler
        self._ledger = ledger
        self._circuits = circuits

    async def claim(self, poll: Poll, wanted: int) -> Claim:
        peeks = await self._peek_first(poll, wanted)
        if _status(peeks) != "active":
            # A partition that was away when the worker's status changed still has the old one.
            peeks = {each: msgspec.structs.replace(peek, heads=()) for each, peek in peeks.items()}
        answer = next_answer(peeks.values())
        if any(peek.live_count for peek in peeks.values()):
            taken = await self._repeat(poll, peeks, answer)
        else:
            taken = await self._take(poll, peeks, wanted, answer)
        return _claim(taken, peeks, answer)

    async def _peek_first(self, poll: Poll, wanted: int) -> dict[int, Peek]:
        """A poll with an id peeks at all partitions: its earlier tasks may lie in any of them."""
        every = sorted([*self._health.up, *self._health.retryable()])
        chosen = every if poll.poll_id else self._sampler.choose(every, poll.worker_id)
        peeks = await self._peek(poll, wanted, chosen or range(len(self._parts)))
        has_too_few = sum(len(peek.heads) for peek in peeks.values()) < wanted
        counts_everywhere = any(peek.uses or peek.circuit_results or peek.is_suspect for peek in peeks.values())
        if (has_too_few or counts_everywhere) and len(chosen) < len(every):
            peeks |= await self._peek(poll, wanted, [each for each in every if each not in chosen])
        return peeks

    async def _peek(self, poll: Poll, wanted: int, partitions: Sequence[int], left: str = "") -> dict[int, Peek]:
        depth = depth_for(wanted, len(self._parts))
        answers = await self._health.call(partitions, lambda each: self._parts[each].peek(poll, depth, left))
        peeks = {each: answer for each, answer in answers.items() if isinstance(answer, Peek)}
        failures = {each: answer for each, answer in answers.items() if isinstance(answer, Exception)}
        joined = await self._worker_sync.register_missing(poll.worker_id, failures, is_elsewhere=bool(peeks))
        if joined:
            peeks |= await self._peek(poll, wanted, joined)
        return peeks

    async def _take(self, poll: Poll, peeks: dict[int, Peek], wanted: int, answer: int) -> Taken:
        turn = self._circuits.turn(poll.worker_id)
        try:
            return await self._take_in_turn(turn, poll, peeks, wanted, answer)
        finally:
            await turn.end()

    async def _take_in_turn(self, turn: Turn, poll: Poll, peeks: dict[int, Peek], wanted: int, answer: int) -> Taken:
        tasks: list[ClaimedTask] = []
        is_repeat, now_ms, grant, verdict = False, 0, NO_LIMITS, CLOSED
        depth, room = depth_for(wanted, len(self._parts)), MAX_CLAIM_BYTES
        for _ in range(MAX_ROUNDS):
            found, verdict = await self._find(turn, poll, peeks, wanted, wanted - len(tasks))
            best = within(found, verdict.left)
            uses = _uses(peeks)
            grant = await self._grant(uses, best, peeks) if uses else NO_LIMITS
            allowed = within(best, {scope: permit.granted for scope, permit in grant.permits.items()})
            chosen = shares(allowed)
            claims = await self._claim_shares(poll, peeks, chosen, answer, grant, verdict, room) if chosen else []
            if len(claims) == len(chosen):
                await self._settle(grant, uses, chosen, claims)
            fresh_tasks = [task for claim in claims for task in claim.tasks]
            tasks += fresh_tasks
            room -= sum(len(task.definition.parameters) for task in fresh_tasks)
            is_repeat = any(claim.is_repeat for claim in claims)
            now_ms = max((claim.now_ms for claim in claims), default=now_ms)
            is_short = len(fresh_tasks) < sum(share.wanted for share in chosen)
            has_more = any(len(peek.heads) >= depth for peek in peeks.values())
            is_cut = len(allowed) < len(found)
            if len(tasks) >= wanted or room <= 0 or is_repeat or not (is_short or has_more or is_cut):
                break
            await self._peek_again(poll, peeks, wanted, verdict, grant.left)
        waits = [grant.refills_in_ms, NEXT_TURN_MS if turn.is_requested and not turn.is_mine else None]
        again_in_ms = min((each for each in waits if each is not None), default=None)
        return Taken(tasks, is_repeat, now_ms, again_in_ms, verdict.circuits)

    async def _find(
        self, turn: Turn, poll: Poll, peeks: dict[int, Peek], wanted: int, missing: int
    ) -> tuple[MergedHeads, CircuitVerdict]:
        """Returns the best remaining heads and the circuits' verdict. Trials are given in a turn, after a new peek."""
        depth = depth_for(wanted, len(self._parts))
        found, verdict = best_of(_heads(peeks), missing, depth), await self._circuits.verdict(poll.worker_id, peeks)
        if gives_trials(verdict, [head.task_type for head, _ in found]):
            if not turn.is_requested and await turn.request():
                await self._peek_again(poll, peeks, wanted, verdict, "")
                found = best_of(_heads(peeks), missing, depth)
                verdict = await self._circuits.verdict(poll.worker_id, peeks)
            if not turn.is_mine:
                verdict = verdict.without_trials()
        return found, verdict

    async def _peek_again(
        self, poll: Poll, peeks: dict[int, Peek], wanted: int, verdict: CircuitVerdict, left: str
    ) -> None:
        limited_poll = msgspec.structs.replace(poll, circuit_shares=verdict.shares())
        fresh = await self._peek(limited_poll, wanted, list(peeks), left)
        peeks.clear()
        peeks.update(fresh)

    async def _grant(self, uses: Uses, best: MergedHeads, peeks: Mapping[int, Peek]) -> Grant:
        """Without a peek at partition 0 the ledger, which lies there, is away too."""
        return await self._ledger.grant(uses, scopes_of(best), peeks[0].now_ms if 0 in peeks else 0)

    async def _claim_shares(
        self,
        poll: Poll,
        peeks: Mapping[int, Peek],
        chosen: Sequence[Share],
        answer: int,
        grant: Grant,
        verdict: CircuitVerdict,
        room: int,
    ) -> list[Claim]:
        by_partition = {share.partition: share for share in chosen}

        async def take(partition: int) -> Claim:
            share = by_partition[partition]
            permits = counts_text({scope: share.counts.get(scope, 0) for scope in grant.permits})
            not_after = peeks[partition].now_ms + PERMIT_MS
            own = msgspec.structs.replace(_poll_for(poll, partition), circuit_shares=verdict.shares(share.counts))
            bounds = (share.wanted, share.max_rank, answer, permits, not_after, room // len(chosen))
            return await self._parts[partition].claim(own, *bounds)

        return await self._claims(list(by_partition), take)

    async def _settle(self, grant: Grant, uses: Uses, chosen: Sequence[Share], claims: Sequence[Claim]) -> None:
        """A grant that cannot be settled now expires."""
        used: Counter[str] = Counter()
        taken: dict[str, dict[int, int]] = {}
        for share, claim in zip(chosen, claims, strict=True):
            used.update(task.definition.task_type for task in claim.tasks)
            used[WHOLE_QUEUE] += len(claim.tasks)
            for scope, count in claim.taken:
                taken.setdefault(scope, {})[share.partition] = count
        with contextlib.suppress(Unavailable):
            await self._ledger.settle(grant, uses, used, taken)

    async def _repeat(self, poll: Poll, peeks: Mapping[int, Peek], answer: int) -> Taken:
        """The tasks of this poll's last answer, in whichever partitions they lie."""

        async def repeat(partition: int) -> Claim:
            return await self._parts[partition].claim(
                _poll_for(poll, partition), peeks[partition].live_count, -1, answer
            )

        claims = await self._claims([each for each, peek in peeks.items() if peek.live_count], repeat)
        tasks, now_ms = [task for claim in claims for task in claim.tasks], max(claim.now_ms for claim in claims)
        verdict = await self._circuits.verdict(poll.worker_id, peeks)
        return Taken(tasks, True, now_ms, circuits=verdict.circuits)

    async def _claims(self, partitions: Sequence[int], call: Callable[[int], Awaitable[Claim]]) -> list[Claim]:
        """The claims of the partitions that answer; raises where none does.

        Tasks that a partition assigned without its answer arriving return when their assignment lapses.
        """
        answers = await self._health.call(partitions, call)
        failures = [each for each in answers.values() if isinstance(each, Exception)]
        for error in failures:
            if not isinstance(error, Unavailable):
                raise error
        if failures and len(failures) == len(answers):
            raise failures[0]
        return [each for each in answers.values() if isinstance(each, Claim)]


def _heads(peeks: Mapping[int, Peek]) -> dict[int, Sequence[Head]]:
    return {partition: peek.heads for partition, peek in peeks.items()}


def _uses(peeks: Mapping[int, Peek]) -> Uses:
    """The uses of all partitions that answer, or nothing where no limit is in force."""
    return (
        {partition: peek.uses for partition, peek in peeks.items()} if any(peek.uses for peek in peeks.values()) else {}
    )


def _poll_for(poll: Poll, partition: int) -> Poll:
    """The poll with a token of its own: each partition numbers its tasks, so a shared token would repeat leases."""
    return msgspec.structs.replace(poll, token=f"{poll.token}{partition:02x}")


def next_answer(peeks: Iterable[Peek]) -> int:
    """A number above all earlier answers, and random: of two polls under one id none may undo the other's claim."""
    last = max((peek.answer for peek in peeks), default=0) >> NUMBER_BITS
    return (last + 1 << NUMBER_BITS) + secrets.randbits(NUMBER_BITS)


def _status(peeks: Mapping[int, Peek]) -> str:
    return most_urgent(peek.worker_status for peek in peeks.values())


def _claim(taken: Taken, peeks: Mapping[int, Peek], answer: int) -> Claim:
    now_ms = max(taken.now_ms, *(peek.now_ms for peek in peeks.values()))
    instants = [peek.retry_at_ms for peek in peeks.values()]
    instants += [each.until_ms for each in taken.circuits]
    instants.append(None if taken.again_in_ms is None else now_ms + taken.again_in_ms)
    stops: dict[Stop, None] = dict.fromkeys(stop for peek in peeks.values() for stop in peek.stops)
    return Claim(
        tasks=tuple(sorted(taken.tasks, key=lambda task: (task.rank or 0, task.task_id))),
        answer=answer if taken.tasks else 0,
        now_ms=now_ms,
        retry_at_ms=None if taken.tasks else min(filter(None, instants), default=None),
        stops=tuple(stops),
        worker_status=_status(peeks),
        should_drain=any(peek.should_drain for peek in peeks.values()),
        profile=next(iter(peeks.values())).profile,
        circuits=taken.circuits,
        is_repeat=taken.is_repeat,
    )
