"""The settings of one partition, from those of the whole queue."""

import math

import msgspec

from tideq.queue_core.settings import QueueSettings

UNLIMITED = 2**53


def settings_of(settings: QueueSettings, partition: int) -> QueueSettings:
    """Divides the outbox, rounded up. Depth limits and clients' rates apply to the whole queue: see `admission.py`."""
    admission, count = settings.admission, settings.partition_count
    divided = msgspec.structs.replace(
        admission,
        soft_depth=UNLIMITED,
        high_only_depth=UNLIMITED,
        max_depth=UNLIMITED,
        max_outbox_entries=math.ceil(admission.max_outbox_entries / count),
        client_rate_per_second=0,
    )
    return msgspec.structs.replace(settings, partition=partition, partitions=(1,), is_part=True, admission=divided)
