"""The fleet: registration, heartbeats, drains, probe results and deregistration of workers.

Every worker is registered in all partitions. The tasks of a dead worker are not recovered here: any claim or sweep that
finds them due recovers them.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from tideq.queue_core.circuits import merged_circuits
from tideq.queue_core.errors import InvalidRequest, Unavailable, UnknownWorker
from tideq.queue_core.name_rules import NAME
from tideq.queue_core.partitioning.queue_partitions import QueuePartitions
from tideq.queue_core.partitioning.worker_sync import WorkerSync
from tideq.queue_core.task import WorkerDeclaration
from tideq.queue_core.worker_calls import (
    FleetPage,
    Heartbeat,
    Member,
    ReportedState,
    beat,
    deregister_worker,
    get_worker,
    list_workers,
    register_worker,
    set_worker_state,
)

WORKER_STATUSES = ("active", "draining", "unhealthy", "dead")
URGENCY = ("leaving", "draining", "unhealthy", "active", "dead")
"""Where partitions have different statuses of a worker, the first of these counts."""
MAX_PAGE = 500
LISTED_TASKS = 20
"""Ids of held tasks that a list shows for each worker; the page of one worker shows all."""

T = TypeVar("T")


class Fleet:
    def __init__(self, partitions: QueuePartitions, worker_sync: WorkerSync) -> None:
        self._partitions = partitions
        self._worker_sync = worker_sync

    async def register(self, worker: WorkerDeclaration) -> None:
        """Registers in all partitions that answer; the others are synchronised later."""
        _check(worker)
        await self._partitions.call_some(lambda scripts: register_worker(scripts, worker))

    async def get(self, worker_id: str) -> Member:
        """Returns one worker with all held tasks, also if it died within the hour; raises UnknownWorker."""
        answers = await self._partitions.call_known(lambda scripts: get_worker(scripts, worker_id))
        return merged_member(_registered(answers.values()))

    async def heartbeat(
        self,
        worker_id: str,
        health: bytes = b"",
        *,
        reported_state: ReportedState | None = None,
        load: int | None = None,
    ) -> Heartbeat:
        """Omitted values stay as last reported."""
        partitions = self._partitions
        answers = await partitions.call(
            partitions.health.available(), lambda scripts: beat(scripts, worker_id, health, reported_state, load)
        )
        failures = {each: error for each, error in answers.items() if isinstance(error, Exception)}
        beats = [each for each in answers.values() if isinstance(each, Heartbeat)]
        await self._worker_sync.register_missing(worker_id, failures, is_elsewhere=bool(beats))
        return Heartbeat(
            now_ms=max(each.now_ms for each in beats),
            should_drain=any(each.should_drain for each in beats),
            stops=tuple(dict.fromkeys(stop for each in beats for stop in each.stops)),
            circuits=merged_circuits(each.circuits for each in beats),
        )

    async def drain(self, worker_id: str) -> None:
        """Give the worker no new tasks; it may finish those it holds."""
        await self.set_state(worker_id, "draining")

    async def set_health(self, worker_id: str, is_healthy: bool) -> str:
        """Returns the new status. An unhealthy worker gets no new tasks and keeps those it holds."""
        return await self.set_state(worker_id, "active" if is_healthy else "unhealthy")

    async def members(
        self, statuses: Collection[str] = (), *, after: str = "", limit: int = 100, most_tasks: int = 0
    ) -> FleetPage:
        """Returns a page of workers in the order of their ids, each with at most `most_tasks` held task ids.

        Without `statuses`, workers of all statuses. A status is one over all partitions, so only a single partition can
        filter by it.
        """
        _check_page(statuses, limit)
        filtered = statuses if self._partitions.count == 1 else ()
        answers = await self._partitions.call_some(
            lambda scripts: list_workers(scripts, filtered, after=after, limit=limit, most_tasks=most_tasks)
        )
        return _merged_page(list(answers.values()), statuses, limit, most_tasks)

    async def all(self, statuses: Collection[str] = ()) -> AsyncIterator[Member]:
        """Yields all workers, page by page."""
        after = ""
        while True:
            page = await self.members(statuses, after=after, limit=MAX_PAGE)
            for member in page.members:
                yield member
            if not page.next_after:
                return
            after = page.next_after

    async def remove(self, worker_id: str) -> int:
        """Deregister the worker and release its tasks at no cost; returns how many tasks were released.

        In several partitions it is drained in all of them first, so that none of its polls registers it again
        meanwhile.
        """
        if self._partitions.count > 1:
            await self.set_state(worker_id, "draining")
        answers = await self._partitions.call_known(lambda scripts: deregister_worker(scripts, worker_id))
        return sum(_registered(answers.values()))

    async def set_state(self, worker_id: str, state: ReportedState | None, probe_failures: int | None = None) -> str:
        """Store the state that the service found and the probe failures in a row; returns the new status.

        None leaves a value unchanged.
        """
        answers = await self._partitions.call_known(
            lambda scripts: set_worker_state(scripts, worker_id, state, probe_failures)
        )
        return most_urgent(_registered(answers.values()))


def _check_page(statuses: Collection[str], limit: int) -> None:
    if unknown := sorted(set(statuses) - set(WORKER_STATUSES)):
        raise InvalidRequest("status", f"{unknown[0]!r} is not one of {', '.join(WORKER_STATUSES)}")
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidRequest("limit", f"{limit} lies outside 1 … {MAX_PAGE}")


def _merged_page(pages: Sequence[FleetPage], statuses: Collection[str], limit: int, most_tasks: int) -> FleetPage:
    """A page ends where the first of the partitions' pages ends."""
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


def _check(worker: WorkerDeclaration) -> None:
    names: Sequence[tuple[str, Sequence[Any]]] = (
        ("worker_id", (worker.worker_id,)),
        ("task_types", worker.task_types or ()),
        ("capabilities", worker.capabilities),
    )
    for field, values in names:
        for value in values:
            if not NAME.fullmatch(value):
                raise InvalidRequest(field, f"{value!r} is not a name: letters, digits, '_', '.', '-', at most 64")
    if worker.task_types is not None and not worker.task_types:
        raise InvalidRequest("task_types", "empty; name at least one type, or omit the field to accept any type")
    if not 1 <= worker.capacity <= 10_000:
        raise InvalidRequest("capacity", f"{worker.capacity} lies outside 1 … 10 000")
