"""What a rebuild and a reconciliation both stand on: one partition of the store, and history's side of it."""

from typing import NamedTuple

from tideq.persistence.partition_owner import Belonging
from tideq.persistence.checkpoints import Checkpoints
from tideq.persistence.database import Connection
from tideq.queue_core.store.restore import Restoration
from tideq.queue_core.settings import QueueSettings


class Ground(NamedTuple):
    connection: Connection
    restoration: Restoration
    checkpoints: Checkpoints
    settings: QueueSettings
    belonging: Belonging
