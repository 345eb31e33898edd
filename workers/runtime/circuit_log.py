"""Logs when the service opens or closes a circuit: task types it withholds because handlers failed too often."""

from collections.abc import Iterable

import structlog

from tideq.workers.runtime.service_api import BlockedTaskType

log = structlog.get_logger("tideq.worker")


class CircuitLog:
    def __init__(self) -> None:
        self._blocked: dict[str | None, BlockedTaskType] = {}

    def update(self, worker_id: str, blocked: Iterable[BlockedTaskType]) -> None:
        """Warns once for each opening, also for an opening that follows a failed trial."""
        current = {each.task_type: each for each in blocked}
        for task_type, each in current.items():
            before = self._blocked.get(task_type)
            if each.until is not None and (before is None or before.until != each.until):
                log.warning(
                    "circuit opened", worker_id=worker_id, task_type=task_type, until=each.until, reason=each.reason
                )
        for task_type in self._blocked.keys() - current.keys():
            log.info("circuit closed", worker_id=worker_id, task_type=task_type)
        self._blocked = current
