"""What each partition is told of the settings of the whole queue."""

import math

import msgspec

from tideq.queue_core.settings import QueueSettings


def settings_of(settings: QueueSettings, partition: int) -> QueueSettings:
    """Depths, the outbox and clients' rates are divided, rounded up.

    Bursts are not: a batch of any size that is allowed goes to one partition.
    """
    admission, count = settings.admission, settings.partition_count
    divided = msgspec.structs.replace(
        admission,
        soft_depth=math.ceil(admission.soft_depth / count),
        high_only_depth=math.ceil(admission.high_only_depth / count),
        max_depth=math.ceil(admission.max_depth / count),
        max_outbox_entries=math.ceil(admission.max_outbox_entries / count),
        client_rate_per_second=admission.client_rate_per_second / count,
    )
    return msgspec.structs.replace(settings, partition=partition, partitions=(1,), is_part=True, admission=divided)
