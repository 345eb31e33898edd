"""Registers a worker in partitions where it is missing: new ones, or ones that declared it dead.

Tasks that such a partition took back from the worker stay taken back: their leases there are void.
"""

import contextlib
from collections.abc import Mapping, Sequence

from tideq.queue_core.errors import Unavailable, UnknownWorker, WorkerExists
from tideq.queue_core.partitioning.queue_partitions import QueuePartitions, answers_of
from tideq.queue_core.worker_calls import ReportedState, beat, get_worker, register_worker, set_worker_state


class WorkerSync:
    def __init__(self, partitions: QueuePartitions) -> None:
        self._partitions = partitions

    async def register_missing(
        self, worker_id: str, failures: Mapping[int, Exception], *, is_elsewhere: bool
    ) -> list[int]:
        """Returns the failed partitions in which the worker is registered now.

        Raises the error of a partition where no other one has the worker (`is_elsewhere`).
        """
        for error in failures.values():
            if not isinstance(error, Unavailable | UnknownWorker):
                raise error
        missing = [each for each, error in failures.items() if isinstance(error, UnknownWorker)]
        if not is_elsewhere and failures:
            raise failures[missing[0]] if missing else next(iter(failures.values()))
        return await self._register(worker_id, missing) if missing else []

    async def _register(self, worker_id: str, missing: Sequence[int]) -> list[int]:
        """A draining worker is not registered: it may be leaving one partition after the other just now."""
        others = [each for each in self._partitions.health.up if each not in missing]
        answers = await self._partitions.call(others, lambda scripts: get_worker(scripts, worker_id))
        members = [each for each in answers_of(answers) if each.service_state != "dead"]
        if not members or any(each.service_state == "draining" for each in members):
            return []
        is_healthy = all(each.service_state == "active" for each in members)
        reported = {each.reported_state for each in members}
        state: ReportedState | None = (
            "draining" if "draining" in reported else "unhealthy" if "unhealthy" in reported else None
        )
        joined: list[int] = []
        for partition in missing:
            scripts = self._partitions.scripts[partition]
            with contextlib.suppress(WorkerExists):
                await register_worker(scripts, members[0].worker)
            if not is_healthy:
                await set_worker_state(scripts, worker_id, "unhealthy")
            if state:
                await beat(scripts, worker_id, b"", state, None)
            joined.append(partition)
        return joined
