"""What the service gives no more of, because handlers failed too often: a worker's log says so when it changes."""

from collections.abc import Iterable

import structlog

from tideq.workers.runtime.service_api import BlockedType

log = structlog.get_logger("tideq.worker")


class CircuitLog:
    """Of one registered worker."""

    def __init__(self) -> None:
        self._known: dict[str | None, BlockedType] = {}

    def note(self, worker_id: str, told: Iterable[BlockedType]) -> None:
        """Warns once for each opening, also for one that follows a failed trial."""
        now = {each.task_type: each for each in told}
        for task_type, each in now.items():
            before = self._known.get(task_type)
            if each.until is not None and (before is None or before.until != each.until):
                log.warning(
                    "circuit opened", worker_id=worker_id, task_type=task_type, until=each.until, reason=each.reason
                )
        for task_type in self._known.keys() - now.keys():
            log.info("circuit closed", worker_id=worker_id, task_type=task_type)
        self._known = now
