"""A claim over several partitions: look at their heads, merge by rank, take from each what is its share.

Up to eight partitions the order is exact as long as nobody else claims in between; who is overtaken by another worker
looks again, so tasks are never taken out of turn, only fewer than wanted. Of more than eight partitions a claim looks
at eight picked at random, and at all of them now and then, where those eight have too little, and where a worker was
not heard of elsewhere for long.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tideq.queue_core.engine.partitions.heads import Share, depth_for, shares
from tideq.queue_core.engine.partitions.health import Health
from tideq.queue_core.engine.partitions.membership import Membership
from tideq.queue_core.engine.partitions.sampling import Sampling
from tideq.queue_core.engine.polls import Peek, Poll
from tideq.queue_core.engine.queue import Queue
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.task import Claim, ClaimedTask, Stop

MAX_ROUNDS = 4
"""Looks of one claim: another worker may be faster, and a partition may have more than it told of."""
NUMBER_BITS = 32


class Taken(NamedTuple):
    tasks: list[ClaimedTask]
    is_repeat: bool
    now_ms: int


class Claiming:
    def __init__(self, parts: Sequence[Queue], health: Health, membership: Membership, sampling: Sampling) -> None:
        self._parts = parts
        self._health = health
        self._membership = membership
        self._sampling = sampling

    async def claim(self, poll: Poll, wanted: int) -> Claim:
        peeks = await self._look(poll, wanted)
        answer = next_answer(peeks.values())
        if any(peek.live_count for peek in peeks.values()):
            taken = await self._repeat(poll, peeks, answer)
        else:
            taken = await self._take(poll, peeks, wanted, answer)
        return _claim(taken, peeks, answer)

    async def _look(self, poll: Poll, wanted: int) -> dict[int, Peek]:
        """A poll that may be repeated looks everywhere: what it was given before may lie anywhere."""
        every = sorted([*self._health.well, *self._health.rested()])
        chosen = every if poll.poll_id else self._sampling.choose(every, poll.worker_id)
        peeks = await self._peek(poll, wanted, chosen or range(len(self._parts)))
        if sum(len(peek.heads) for peek in peeks.values()) < wanted and len(chosen) < len(every):
            peeks |= await self._peek(poll, wanted, [each for each in every if each not in chosen])
        return peeks

    async def _peek(self, poll: Poll, wanted: int, partitions: Sequence[int]) -> dict[int, Peek]:
        depth = depth_for(wanted, len(self._parts))
        answers = await self._health.ask(partitions, lambda each: self._parts[each].peek(poll, depth))
        peeks = {each: told for each, told in answers.items() if isinstance(told, Peek)}
        failures = {each: told for each, told in answers.items() if isinstance(told, Exception)}
        joined = await self._membership.mend(poll.worker_id, failures, has_friends=bool(peeks))
        if joined:
            peeks |= await self._peek(poll, wanted, joined)
        return peeks

    async def _take(self, poll: Poll, peeks: dict[int, Peek], wanted: int, answer: int) -> Taken:
        tasks: list[ClaimedTask] = []
        is_repeat, now_ms = False, 0
        depth = depth_for(wanted, len(self._parts))
        for _ in range(MAX_ROUNDS):
            heads = {partition: peek.heads for partition, peek in peeks.items()}
            chosen = shares(heads, wanted - len(tasks), depth)
            got = await self._claim_shares(poll, chosen, answer) if chosen else []
            tasks += [task for claim in got for task in claim.tasks]
            is_repeat = any(claim.is_repeat for claim in got)
            now_ms = max((claim.now_ms for claim in got), default=now_ms)
            is_short = sum(len(claim.tasks) for claim in got) < sum(share.wanted for share in chosen)
            has_more = any(len(found) >= depth for found in heads.values())
            if len(tasks) >= wanted or is_repeat or not (is_short or has_more):
                break
            fresh = await self._peek(poll, wanted, list(peeks))
            peeks.clear()
            peeks.update(fresh)
        return Taken(tasks, is_repeat, now_ms)

    async def _claim_shares(self, poll: Poll, chosen: Sequence[Share], answer: int) -> list[Claim]:
        by_partition = {share.partition: share for share in chosen}

        async def take(partition: int) -> Claim:
            share = by_partition[partition]
            return await self._parts[partition].claim_for(_own(poll, partition), share.wanted, share.max_rank, answer)

        return await self._claims(list(by_partition), take)

    async def _repeat(self, poll: Poll, peeks: Mapping[int, Peek], answer: int) -> Taken:
        """What the last answer to this poll handed out, wherever it came from."""

        async def again(partition: int) -> Claim:
            return await self._parts[partition].claim_for(
                _own(poll, partition), peeks[partition].live_count, -1, answer
            )

        got = await self._claims([each for each, peek in peeks.items() if peek.live_count], again)
        return Taken([task for claim in got for task in claim.tasks], True, max(claim.now_ms for claim in got))

    async def _claims(self, partitions: Sequence[int], call: Callable[[int], Awaitable[Claim]]) -> list[Claim]:
        """What one could not give is left there; tasks it gave without saying so come back when their time is up."""
        answers = await self._health.ask(partitions, call)
        failures = [each for each in answers.values() if isinstance(each, Exception)]
        for error in failures:
            if not isinstance(error, Unavailable):
                raise error
        if failures and len(failures) == len(answers):
            raise failures[0]
        return [each for each in answers.values() if isinstance(each, Claim)]


def _own(poll: Poll, partition: int) -> Poll:
    """Tasks of one claim are numbered in each partition: without a token of its own two would have the same lease."""
    return msgspec.structs.replace(poll, token=f"{poll.token}{partition:02x}")


def next_answer(peeks: Iterable[Peek]) -> int:
    """Above all before it, and no other claim's: of two polls under one id none may withdraw the other's tasks."""
    last = max((peek.answer for peek in peeks), default=0) >> NUMBER_BITS
    return (last + 1 << NUMBER_BITS) + secrets.randbits(NUMBER_BITS)


def _claim(taken: Taken, peeks: Mapping[int, Peek], answer: int) -> Claim:
    states = {peek.worker_state for peek in peeks.values()}
    state = next(each for each in ("draining", "unhealthy", "active", *states) if each in states)
    stops: dict[Stop, None] = dict.fromkeys(stop for peek in peeks.values() for stop in peek.stops)
    return Claim(
        tasks=tuple(sorted(taken.tasks, key=lambda task: (task.rank or 0, task.task_id))),
        answer=answer if taken.tasks else 0,
        now_ms=max(taken.now_ms, *(peek.now_ms for peek in peeks.values())),
        retry_at_ms=None if taken.tasks else min(filter(None, (p.retry_at_ms for p in peeks.values())), default=None),
        stops=tuple(stops),
        worker_state=state,
        profile=next(iter(peeks.values())).profile,
        is_repeat=taken.is_repeat,
    )
