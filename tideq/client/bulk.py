"""Takes tasks from the queue in batches, without a worker runtime: `PullQueue` and `AsyncPullQueue`."""

from tideq.client._async.pull import AsyncPullQueue
from tideq.client._sync.pull import PullQueue
from tideq.client.models.pulled import PulledTask

__all__ = ["AsyncPullQueue", "PullQueue", "PulledTask"]
