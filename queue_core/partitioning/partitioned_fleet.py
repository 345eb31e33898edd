"""The fleet of a queue with several partitions: every worker is registered in all of them."""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import msgspec

from tideq.queue_core.circuits import merged_circuits
from tideq.queue_core.errors import Unavailable, UnknownWorker
from tideq.queue_core.fleet import Fleet, FleetPage, Heartbeat, Member, ReportedState
from tideq.queue_core.partitioning.partition_health import PartitionHealth
from tideq.queue_core.partitioning.worker_sync import WorkerSync
from tideq.queue_core.task import WorkerDeclaration

T = TypeVar("T")
URGENCY = ("leaving", "draining", "unhealthy", "active", "dead")
"""Where partitions have different statuses of a worker, the first of these counts."""


class PartitionedFleet(Fleet):
    def __init__(self, parts: Sequence[Fleet], health: PartitionHealth, worker_sync: WorkerSync) -> None:
        super().__init__(parts[0].scripts)
        self._parts = parts
        self._health = health
        self._worker_sync = worker_sync

    async def register(self, worker: WorkerDeclaration) -> None:
        """Registers in all partitions that answer; the others are synchronised later."""
        await self._health.call_some(lambda each: self._parts[each].register(worker))

    async def get(self, worker_id: str) -> Member:
        partitions = self._health.up or range(len(self._parts))
        answers = await self._health.call(partitions, lambda each: self._parts[each].get(worker_id))
        return merged_member(_registered(answers.values()))

    async def heartbeat(
        self,
        worker_id: str,
        health: bytes = b"",
        *,
        reported_state: ReportedState | None = None,
        load: int | None = None,
    ) -> Heartbeat:
        partitions = sorted([*self._health.up, *self._health.retryable()]) or range(len(self._parts))
        answers = await self._health.call(
            partitions,
            lambda each: self._parts[each].heartbeat(worker_id, health, reported_state=reported_state, load=load),
        )
        failures = {each: error for each, error in answers.items() if isinstance(error, Exception)}
        beats = [beat for beat in answers.values() if isinstance(beat, Heartbeat)]
        await self._worker_sync.register_missing(worker_id, failures, is_elsewhere=bool(beats))
        return Heartbeat(
            now_ms=max(beat.now_ms for beat in beats),
            should_drain=any(beat.should_drain for beat in beats),
            stops=tuple(dict.fromkeys(stop for beat in beats for stop in beat.stops)),
            circuits=merged_circuits(beat.circuits for beat in beats),
        )

    async def members(
        self, statuses: Collection[str] = (), *, after: str = "", limit: int = 100, most_tasks: int = 0
    ) -> FleetPage:
        """`statuses` are statuses over all partitions, so no partition can filter by them."""
        self.check_page(statuses, limit)
        answers = await self._health.call_some(
            lambda each: self._parts[each].members(after=after, limit=limit, most_tasks=most_tasks)
        )
        pages = list(answers.values())
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

    async def remove(self, worker_id: str) -> int:
        """Drains the worker in all partitions first, so that none of its polls registers it again meanwhile."""
        await self.set_state(worker_id, "draining")
        answers = await self._health.call(self._health.up, lambda each: self._parts[each].remove(worker_id))
        return sum(_registered(answers.values()))

    async def set_state(self, worker_id: str, state: ReportedState | None, probe_failures: int | None = None) -> str:
        partitions = self._health.up or range(len(self._parts))
        answers = await self._health.call(
            partitions, lambda each: self._parts[each].set_state(worker_id, state, probe_failures)
        )
        return most_urgent(_registered(answers.values()))


def _registered(results: Iterable[T | Exception]) -> list[T]:
    """The answers of the partitions in which the worker is registered. Raises the first error where there is none."""
    everything = list(results)
    answers = [each for each in everything if not isinstance(each, Exception)]
    for error in (each for each in everything if isinstance(each, Exception)):
        if not answers or not isinstance(error, UnknownWorker | Unavailable):
            raise error
    return answers


def most_urgent(statuses: Iterable[str]) -> str:
    """A status of a later version, which this one does not have, comes first."""
    return min(statuses, key=lambda status: URGENCY.index(status) if status in URGENCY else -1)


def merged_member(members: Sequence[Member], most_tasks: int | None = None) -> Member:
    """Merges the entries of one worker. The worker is dead only if all of them declared it dead."""
    status = most_urgent(member.status for member in members)
    living = [member for member in members if member.service_state != "dead"] or members
    first = members[0]
    return msgspec.structs.replace(
        first,
        status=status,
        service_state=most_urgent(member.service_state for member in living),
        reported_state=most_urgent(member.reported_state for member in living),
        held_count=sum(member.held_count for member in members),
        task_ids=tuple(sorted(task_id for member in members for task_id in member.task_ids)[:most_tasks]),
        current_load=next((member.current_load for member in living if member.current_load is not None), None),
        probe_failures=max(member.probe_failures for member in living),
        registered_at_ms=min(member.registered_at_ms for member in members),
        since_ms=min(member.since_ms for member in members if member.status == status),
        heartbeat_due_at_ms=max(filter(None, (member.heartbeat_due_at_ms for member in members)), default=None),
        died_at_ms=first.died_at_ms if status == "dead" else None,
        health=next((member.health for member in members if member.health), b""),
        circuits=merged_circuits(member.circuits for member in members),
    )
