"""History as the service uses it, assembled: reading, listing, dead letters, clean-up."""

from collections.abc import Mapping, Sequence
from typing import Any

from tideq.persistence.checkpoints import Checkpoints
from tideq.persistence.cleanup import Cleanup
from tideq.persistence.database import Database
from tideq.persistence.dead_letters.list import DeadLetters
from tideq.persistence.dead_letters.replay import Replays
from tideq.persistence.read.lag import Fresh, Freshness, FreshnessOfAll
from tideq.persistence.read.tasks import History
from tideq.persistence.read.list import Listing
from tideq.persistence.read.expired_tasks import Recall
from tideq.persistence.read.timings import Timings
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.engine import Engine
from tideq.queue_core.outbox.consumer import Feed
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.partitioning.partitioned_consumer import PartitionedFeed
from tideq.queue_core.partitioning.routing import Routing
from tideq.queue_core.settings import QueueSettings


class Archive:
    """Opens nothing: whoever made the database and the store's client closes them."""

    def __init__(
        self, database: Database, engine: Engine, client: Any, queue: QueueSettings, settings: HistorySettings
    ) -> None:
        feed = feed_of(client, queue)
        self.database = database
        self.searchable: Mapping[str, Sequence[str]] = settings.searchable
        self.checkpoints = Checkpoints(database, queue.partition)
        self.freshness = freshness_of(database, client, engine)
        self.history = History(database)
        self.listing = Listing(database)
        self.timings = Timings(database)
        self.dead_letters = DeadLetters(database, queue.retention.dead_letter_ttl_ms)
        self.recall = Recall(self.history, self.freshness, feed)
        self.replays = Replays(database, self.dead_letters, engine.queue, self.freshness)
        self.cleanup = Cleanup(database, self.listing, engine.queue, feed, self.freshness)


def freshness_of(database: Database, client: Any, engine: Engine) -> Fresh:
    parts = [
        Freshness(Checkpoints(database, part.settings.partition), Feed(client, client, part.keys), part.scripts)
        for part in engine.parts
    ]
    return parts[0] if len(parts) == 1 else FreshnessOfAll(parts)


def feed_of(client: Any, queue: QueueSettings) -> Feed:
    if queue.partition_count == 1:
        return Feed(client, client, Keys(queue.queue_name, queue.partition))
    keys = [Keys(queue.queue_name, number) for number in range(queue.partition_count)]
    return PartitionedFeed(client, keys, Routing(queue.partitions))
