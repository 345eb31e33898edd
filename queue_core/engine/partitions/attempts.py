"""What a lease holder says, each to the partition its task is in."""

from collections.abc import Sequence

from tideq.queue_core.engine.attempts import Attempts
from tideq.queue_core.engine.checks import check_batch
from tideq.queue_core.engine.partitions.health import Health
from tideq.queue_core.engine.partitions.routing import Routing, seek
from tideq.queue_core.engine.replies import Outcome
from tideq.queue_core.engine.scripts import Scripts
from tideq.queue_core.errors import TaskNotFound, Unavailable
from tideq.queue_core.settings import QueueSettings

Row = tuple[str | int | float | bytes, ...]


class PartitionedAttempts(Attempts):
    def __init__(
        self, parts: Sequence[Attempts], routing: Routing, health: Health, scripts: Scripts, settings: QueueSettings
    ) -> None:
        super().__init__(scripts, settings)
        self._parts = parts
        self._routing = routing
        self._health = health

    async def say(self, verb: str, worker_id: str, rows: Sequence[Row]) -> list[Outcome]:
        """A partition that is away costs its own rows only: the others are told what became of theirs."""
        check_batch(rows)

        async def say_there(part: Attempts, some: list[Row]) -> list[Outcome]:
            try:
                return await part.say(verb, worker_id, some)
            except Unavailable as error:
                self._health.note(self._parts.index(part), error)
                if len(some) == len(rows):
                    raise
                return [Outcome(str(row[0]), error=error) for row in some]

        return await seek(self._routing, self._parts, rows, lambda row: str(row[0]), say_there, is_missing)


def is_missing(outcome: Outcome) -> bool:
    return isinstance(outcome.error, TaskNotFound)
