"""`client.queue`, `client.workers` and `client.dlq`, and lists that are fetched page by page while they are read."""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Generic, TypeVar, Unpack

from tideq.client._async.transport import AsyncTransport
from tideq.client.calls import dlq as dlq_calls
from tideq.client.calls import queue as calls
from tideq.client.calls.base import Call
from tideq.client.calls.dlq import DeadLetterFilter
from tideq.client.calls.listing import several
from tideq.client.models.dead_letters import DeadLetter, Pattern, Replayed
from tideq.client.models.queue import Drained, Limit, QueueStats, WorkerInfo
from tideq.client.models.tasks import Page, Retried
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


T = TypeVar("T")


@strict
class AsyncListing(Generic[T]):
    """Iterate over it for all items, over `pages()` for pages, or take one `page()` and its cursor."""

    def __init__(self, transport: AsyncTransport, page_at: Callable[[str | None], Call[Page[T]]]) -> None:
        self._transport = transport
        self._page_at = page_at

    async def page(self, cursor: str | None = None) -> Page[T]:
        """Returns the first page, or the page that begins at a cursor."""
        return await self._transport.request(self._page_at(cursor))

    async def pages(self) -> AsyncIterator[Page[T]]:
        page = await self.page()
        yield page
        while page.next_cursor:
            page = await self.page(page.next_cursor)
            yield page

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for item in page.items:
                yield item


@strict
class AsyncWorkers:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, status: str | Sequence[str] = (), *, page_size: int = 100) -> AsyncListing[WorkerInfo]:
        """Lists the workers, also those that died within the hour; `status`: `active`, `draining`, `unhealthy`, `dead`.

        >>> [worker.name async for worker in client.workers.list("active")]
        []
        """
        return AsyncListing(self._transport, lambda cursor: calls.workers(several(status), page_size, cursor))

    async def get(self, worker_id: str) -> WorkerInfo:
        """Returns a worker with all tasks it holds, also if it died within the hour."""
        return await self._transport.request(calls.worker(worker_id))

    async def drain(self, worker_id: str) -> Drained:
        """Drains a worker: it gets no new tasks, finishes those it holds and deregisters. Admins only."""
        return await self._transport.request(calls.drain(worker_id))


@strict
class AsyncDlq:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(
        self, *, page_size: int = 100, count: bool = False, **filters: Unpack[DeadLetterFilter]
    ) -> AsyncListing[DeadLetter]:
        """Lists dead letters that were not replayed, the latest first.

        >>> [letter.error.message async for letter in client.dlq.list(task_type="resize")]
        []
        """
        return AsyncListing(
            self._transport, lambda cursor: dlq_calls.dead_letters(filters, page_size, cursor, count=count)
        )

    async def patterns(self) -> tuple[Pattern, ...]:
        """Returns the patterns of dead letters, the most frequent first."""
        return await self._transport.request(dlq_calls.patterns())

    async def replay(self, task_id: str, *, reset_retry_count: bool = True, new_priority: str | None = None) -> Retried:
        """Replays one dead letter, by default with fresh budgets."""
        return await self._transport.request(
            dlq_calls.replay(task_id, reset_retry_count=reset_retry_count, new_priority=new_priority)
        )

    async def replay_all(
        self,
        *,
        dry_run: bool = False,
        reset_retry_count: bool = True,
        new_priority: str | None = None,
        **filters: Unpack[DeadLetterFilter],
    ) -> Replayed:
        """Replays every dead letter that matches all filters; with `dry_run` only counts them.

        Without a filter it replays all. After an interruption it can be repeated: no dead letter is replayed twice.

        >>> (await client.dlq.replay_all(task_type="resize", dry_run=True)).matched
        0
        """
        return await self._transport.request(
            dlq_calls.replay_all(
                filters, reset_retry_count=reset_retry_count, new_priority=new_priority, dry_run=dry_run
            )
        )
