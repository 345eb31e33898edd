"""The arguments of a rebuild and a reconciliation: one partition of the store, and its history."""

from typing import NamedTuple

from tideq.persistence.checkpoints import Checkpoints
from tideq.persistence.database import Connection
from tideq.persistence.partition_owner import PartitionOwner
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.restore import StoreRestore


class RecoveryContext(NamedTuple):
    connection: Connection
    restoration: StoreRestore
    checkpoints: Checkpoints
    settings: QueueSettings
    owner: PartitionOwner
