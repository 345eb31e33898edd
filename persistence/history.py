"""History as the service uses it, assembled: tasks, lists, dead letters, clean-up."""

from collections.abc import Mapping, Sequence
from typing import Any

from tideq.persistence.checkpoints import Checkpoints
from tideq.persistence.cleanup import Cleanup
from tideq.persistence.database import Database
from tideq.persistence.dead_letters.dead_letter_list import DeadLetters
from tideq.persistence.dead_letters.replay import Replays
from tideq.persistence.read.expired_tasks import ExpiredTasks
from tideq.persistence.read.lag import HistoryLag, PartitionLag
from tideq.persistence.read.task_list import TaskList
from tideq.persistence.read.tasks import TaskReader
from tideq.persistence.read.timings import Timings
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.engine import Engine
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.partitioning.absent_tasks import AbsentTasks
from tideq.queue_core.partitioning.routing import Routing
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.settings import QueueSettings


class History:
    """Opens and closes nothing: the caller owns the database and the store's client."""

    def __init__(
        self, database: Database, engine: Engine, client: Any, queue: QueueSettings, settings: HistorySettings
    ) -> None:
        absent_tasks = absent_tasks_in(client, queue)
        self.database = database
        self.searchable: Mapping[str, Sequence[str]] = settings.searchable
        self.checkpoints = Checkpoints(database, queue.partition)
        self.lag = lag_of(database, client, engine)
        self.tasks = TaskReader(database)
        self.listing = TaskList(database)
        self.timings = Timings(database)
        self.dead_letters = DeadLetters(database, queue.retention.dead_letter_ttl_ms)
        self.expired = ExpiredTasks(self.tasks, self.lag, absent_tasks)
        self.replays = Replays(database, self.dead_letters, engine.queue, self.lag)
        self.cleanup = Cleanup(database, self.listing, engine.queue, absent_tasks, self.lag)


def lag_of(database: Database, client: Any, engine: Engine) -> HistoryLag:
    parts = [
        PartitionLag(Checkpoints(database, part.settings.partition), OutboxConsumer(client, part.keys), part.scripts)
        for part in engine.parts
    ]
    return HistoryLag(parts)


def absent_tasks_in(client: Any, queue: QueueSettings) -> AbsentTasks:
    keys = [Keys(queue.queue_name, queue.partition + number) for number in range(queue.partition_count)]
    return AbsentTasks([OutboxConsumer(client, each) for each in keys], Routing(queue.partitions))
