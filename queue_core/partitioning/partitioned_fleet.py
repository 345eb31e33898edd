"""The fleet of a queue with several partitions: every worker belongs to all of them."""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import msgspec

from tideq.queue_core.circuits import merged_circuits
from tideq.queue_core.errors import Unavailable, UnknownWorker
from tideq.queue_core.fleet import Fleet, FleetPage, Heartbeat, Member, Word
from tideq.queue_core.partitioning.partition_health import PartitionHealth
from tideq.queue_core.partitioning.worker_sync import WorkerSync
from tideq.queue_core.task import WorkerDeclaration

T = TypeVar("T")
URGENCY = ("leaving", "draining", "unhealthy", "active", "dead")
"""A worker that stands differently here and there stands as the first of these."""


class PartitionedFleet(Fleet):
    def __init__(self, parts: Sequence[Fleet], health: PartitionHealth, membership: WorkerSync) -> None:
        super().__init__(parts[0].scripts)
        self._parts = parts
        self._health = health
        self._membership = membership

    async def register(self, worker: WorkerDeclaration) -> None:
        """Where it can; a partition that is away learns of it from the others later."""
        await self._health.call_some(lambda each: self._parts[each].register(worker))

    async def describe(self, worker_id: str) -> Member:
        partitions = self._health.up or range(len(self._parts))
        told = await self._health.call(partitions, lambda each: self._parts[each].get(worker_id))
        return merged_member(_known(told.values(), worker_id))

    async def heartbeat(
        self, worker_id: str, health: bytes = b"", *, word: Word | None = None, load: int | None = None
    ) -> Heartbeat:
        partitions = sorted([*self._health.up, *self._health.retryable()]) or range(len(self._parts))
        told = await self._health.call(
            partitions, lambda each: self._parts[each].heartbeat(worker_id, health, word=word, load=load)
        )
        failures = {each: error for each, error in told.items() if isinstance(error, Exception)}
        beats = [beat for beat in told.values() if isinstance(beat, Heartbeat)]
        await self._membership.register_missing(worker_id, failures, has_friends=bool(beats))
        return Heartbeat(
            now_ms=max(beat.now_ms for beat in beats),
            should_drain=any(beat.should_drain for beat in beats),
            stops=tuple(dict.fromkeys(stop for beat in beats for stop in beat.stops)),
            held_back=merged_circuits(beat.held_back for beat in beats),
        )

    async def members(
        self, statuses: Collection[str] = (), *, after: str = "", limit: int = 100, most_tasks: int = 0
    ) -> FleetPage:
        """Statuses are those over all partitions, so no partition can pick by them alone."""
        self.check_page(statuses, limit)
        told = await self._health.call_some(
            lambda each: self._parts[each].members(after=after, limit=limit, most_tasks=most_tasks)
        )
        pages = list(told.values())
        end = min((page.next_after for page in pages if page.next_after), default="")
        by_id: dict[str, list[Member]] = {}
        for member in (member for page in pages for member in page.members):
            if not end or member.worker.worker_id <= end:
                by_id.setdefault(member.worker.worker_id, []).append(member)
        ids = sorted(by_id)
        if len(ids) > limit:
            ids, end = ids[:limit], ids[limit - 1]
        merged = [merged_member(by_id[each], most_tasks) for each in ids]
        wanted = tuple(member for member in merged if not statuses or member.status in statuses)
        return FleetPage(max(page.now_ms for page in pages), wanted, end)

    async def dismiss(self, worker_id: str) -> int:
        """First it drains everywhere, so that no poll of its own brings it back meanwhile."""
        await self.judge(worker_id, "draining")
        told = await self._health.call(self._health.up, lambda each: self._parts[each].remove(worker_id))
        return sum(_known(told.values(), worker_id))

    async def judge(self, worker_id: str, verdict: Word | None, probe_failures: int | None = None) -> str:
        partitions = self._health.up or range(len(self._parts))
        told = await self._health.call(
            partitions, lambda each: self._parts[each].set_state(worker_id, verdict, probe_failures)
        )
        return most_urgent(_known(told.values(), worker_id))


def _known(told: Iterable[T | Exception], worker_id: str) -> list[T]:
    """Without the partitions that do not know the worker, or are away, as long as one does."""
    everything = list(told)
    answers = [each for each in everything if not isinstance(each, Exception)]
    for error in (each for each in everything if isinstance(each, Exception)):
        if not answers or not isinstance(error, UnknownWorker | Unavailable):
            raise error
    return answers


def most_urgent(words: Iterable[str]) -> str:
    """One that a later version says comes first."""
    return min(words, key=lambda word: URGENCY.index(word) if word in URGENCY else -1)


def merged_member(members: Sequence[Member], most_tasks: int | None = None) -> Member:
    """One worker as several partitions have it. Those that gave it up have no say while another did not."""
    status = most_urgent(member.status for member in members)
    living = [member for member in members if member.verdict != "dead"] or members
    first = members[0]
    return msgspec.structs.replace(
        first,
        status=status,
        verdict=most_urgent(member.verdict for member in living),
        word=most_urgent(member.word for member in living),
        held_count=sum(member.held_count for member in members),
        task_ids=tuple(sorted(task_id for member in members for task_id in member.task_ids)[:most_tasks]),
        current_load=next((member.current_load for member in living if member.current_load is not None), None),
        probe_failures=max(member.probe_failures for member in living),
        registered_at_ms=min(member.registered_at_ms for member in members),
        since_ms=min(member.since_ms for member in members if member.status == status),
        heartbeat_due_at_ms=max(filter(None, (member.heartbeat_due_at_ms for member in members)), default=None),
        died_at_ms=first.died_at_ms if status == "dead" else None,
        health=next((member.health for member in members if member.health), b""),
        held_back=merged_circuits(member.held_back for member in members),
    )
