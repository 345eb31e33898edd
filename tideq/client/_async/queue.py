"""`client.queue`: the queue as a whole."""

from datetime import datetime

from tideq.client._async.transport import AsyncTransport
from tideq.client.calls import queue as calls
from tideq.client.models.queue import Limit, QueueStats
from tideq.client.options import strict


@strict
class AsyncQueue:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def stats(self) -> QueueStats:
        """Returns depth, ages, workers, throughput and recoveries.

        >>> (await client.queue.stats()).queue.total_depth
        0
        """
        return await self._transport.request(calls.stats())

    async def pause(self, task_type: str | None = None, *, reason: str = "", resume_at: datetime | None = None) -> None:
        """Stops handing out tasks, of one type or of all types, until `resume` or `resume_at`. Admins only.

        >>> await client.queue.pause("resize", reason="the image store is down")
        >>> [limit.reason for limit in await client.queue.limits() if limit.paused]
        ['the image store is down']
        >>> await client.queue.resume("resize")
        """
        await self._transport.request(calls.pause(task_type, reason, resume_at))

    async def resume(self, task_type: str | None = None) -> None:
        """Hands out tasks again. Admins only."""
        await self._transport.request(calls.resume(task_type))

    async def limits(self) -> tuple[Limit, ...]:
        """Returns the present pauses and limits."""
        return await self._transport.request(calls.limits())

    async def set_limits(
        self,
        task_type: str | None = None,
        *,
        tasks_per_second: float | None = None,
        max_executing: int | None = None,
    ) -> tuple[Limit, ...]:
        """Sets both limits of one type or of the whole queue; None removes a limit. Admins only.

        >>> (limit,) = await client.queue.set_limits("crawl", tasks_per_second=10)
        >>> limit.tasks_per_second
        10.0
        """
        return await self._transport.request(calls.set_limits(task_type, tasks_per_second, max_executing))
