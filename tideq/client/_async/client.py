"""The client: submits, reads and controls tasks."""

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack

from tideq.client._async.events import AsyncEventStream
from tideq.client._async.queue import AsyncDlq, AsyncListing, AsyncQueue, AsyncWorkers
from tideq.client._async.transport import AsyncTransport
from tideq.client.calls import listing, submission
from tideq.client.calls import tasks as calls
from tideq.client.calls.events import EventFilter, filter_params
from tideq.client.calls.listing import TaskFilter, several
from tideq.client.calls.submission import trace_headers
from tideq.client.config import Timeouts, client_config
from tideq.client.errors import InvalidRequest, TideqError
from tideq.client.models.tasks import Cancelled, Explanation, NewTask, Retried, Status, Submitted, Task, TaskOptions
from tideq.client.options import strict
from tideq.client.request_batcher import AsyncRequestBatcher
from tideq.client.retrying import Deadline, RetryPolicy


@strict
class AsyncClient:
    """A TideQ service, over HTTP. Create one client and keep it: its calls share a pool of connections.

    `url` and `api_key` default to TIDEQ_URL and TIDEQ_API_KEY. Transient failures are retried for as long as `retries`
    allows; a task is submitted once, however often its submission was sent.

    >>> from tideq import AsyncClient
    >>> async with AsyncClient() as client:
    ...     submitted = await client.submit("resize", {"url": "https://example.org/a.png", "width": 640})
    ...     task = await client.wait(submitted.task_id, timeout_seconds=60)
    >>> task.status, task.result
    ('completed', {'width': 640})

    All errors are subclasses of TideqError, see `tideq.client.errors`. `client.queue` is the queue as a whole,
    `client.dlq` the dead letters, `client.workers` the fleet.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        retries: RetryPolicy | None = None,
        timeouts: Timeouts | None = None,
        max_connections: int = 100,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        connection = client_config(url, api_key, timeouts, max_connections, verify)
        self.transport = AsyncTransport(connection, retries or RetryPolicy())
        self._submissions = AsyncRequestBatcher(self.transport)
        self.queue = AsyncQueue(self.transport)
        self.dlq = AsyncDlq(self.transport)
        self.workers = AsyncWorkers(self.transport)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self.transport.aclose()

    async def submit(self, task_type: str, parameters: Any = None, **options: Unpack[TaskOptions]) -> Submitted:
        """Submits one task. `NewTask` documents the options.

        A lost response is retried under the same idempotency key, yours or a generated one. Raises
        DurabilityNotReached where the task was accepted with a lower durability than requested.

        Coroutines that submit at the same time share requests, and each task is still accepted or refused by itself.
        Threads do not share requests: use `submit_many` for many tasks.

        >>> mail = await client.submit("mail", {"to": "ann@example.org"}, priority="high", delay_seconds=3600)
        >>> mail.status
        'queued'
        """
        task = NewTask(task_type, {} if parameters is None else parameters, **options)
        return await self._submissions.submit(task, trace_headers())

    async def submit_many(
        self, tasks: Iterable[NewTask], *, idempotency_key: str | None = None
    ) -> tuple[Submitted, ...]:
        """Submits any number of tasks in as few requests as possible; returns the results in the same order.

        A request takes up to 1 000 tasks, all or none. If a request fails, `submitted` of the error has the tasks of
        the earlier ones. With your own `idempotency_key` the same tasks can be submitted again: none is created twice.

        >>> from tideq.client import NewTask
        >>> len(await client.submit_many(NewTask("crawl", {"page": number}) for number in range(2500)))
        2500
        """
        key, trace, submitted = idempotency_key or submission.new_key(), trace_headers(), list[Submitted]()
        for batch in submission.batches(tasks):
            try:
                submitted += await self.transport.request(submission.submit_batch(batch, key, trace))
            except TideqError as error:
                if isinstance(error, InvalidRequest):
                    submission.shift_pointers(error, batch.first)
                error.submitted = tuple(submitted)
                if submitted:
                    error.add_note(f"{len(submitted)} tasks were submitted before: see `submitted` of the error")
                raise
        return tuple(submitted)

    async def get(self, task_id: str, *, history: bool = False) -> Task:
        """Returns the task as it is now; with `history`, with all its transitions. Raises NotFound.

        >>> task = await client.get(submitted.task_id, history=True)
        >>> [change.state for change in task.state_history]
        ['queued', 'assigned', 'executing', 'completed']
        """
        return await self.transport.request(calls.read(task_id, history=history))

    async def wait(self, task_id: str, timeout_seconds: float | None = None) -> Task:
        """Returns the task once it is finished, or as it is after `timeout_seconds`; None waits without limit.

        A finished task may have failed: check `has_succeeded`, or `status` and `error`.
        """
        deadline = Deadline(timeout_seconds)
        while True:
            task = await self.transport.request(calls.wait(task_id, deadline.next_poll), within_seconds=deadline.left)
            if task.is_done or deadline.is_over:
                return task
            await asyncio.sleep(deadline.pause_seconds)

    def list(self, *, page_size: int = 100, count: bool = False, **filters: Unpack[TaskFilter]) -> AsyncListing[Task]:
        """Lists tasks that match all filters, newest first, fetched page by page. `TaskFilter` documents the filters.

        >>> async for task in client.list(status=["completed", "failed"], task_type="resize"):
        ...     print(task.status, task.parameters["width"])
        completed 640
        """
        return AsyncListing(self.transport, lambda cursor: listing.tasks(filters, page_size, cursor, count=count))

    async def cancel(self, task_id: str) -> Cancelled:
        """Cancels a live task and notifies its worker. Raises Conflict for a finished task.

        >>> (await client.cancel(mail.task_id)).was_executing
        False
        """
        return await self.transport.request(calls.cancel(task_id))

    async def purge(self, task_id: str) -> None:
        """Removes a finished task permanently. Raises Conflict for a task that is not finished."""
        await self.transport.request(calls.purge(task_id))

    async def retry(self, task_id: str, *, reset_retry_count: bool = True, new_priority: str | None = None) -> Retried:
        """Runs a failed, dead or cancelled task again, by default with fresh budgets.

        >>> (await client.retry(mail.task_id, new_priority="high")).status
        'queued'
        """
        return await self.transport.request(
            calls.retry(task_id, reset_retry_count=reset_retry_count, new_priority=new_priority)
        )

    async def explain(self, task_id: str) -> Explanation:
        """Explains why a task is in its state, and what blocks it.

        >>> (await client.explain(mail.task_id)).blocked_by
        ('no active worker serves mail',)
        """
        return await self.transport.request(calls.explain(task_id))

    async def clean_up(
        self,
        older_than: datetime | timedelta,
        *,
        status: Status | Sequence[Status] = (),
        task_type: str | None = None,
    ) -> int:
        """Removes tasks that ended before an instant, or longer ago than an age; returns how many. Admins only.

        >>> from datetime import timedelta
        >>> await client.clean_up(timedelta(days=30), status="completed")
        0
        """
        return (await self.transport.request(calls.clean_up(older_than, several(status), task_type))).deleted

    def events(self, *, after: str | None = None, **filters: Unpack[EventFilter]) -> AsyncEventStream:
        """Streams transitions, from now or after an event id; broken connections are restored.

        >>> async with client.events(task_type="mail") as events:
        ...     mail = await client.submit("mail", {"to": "eve@example.org"})
        ...     event = await anext(events)
        >>> event.status, event.task_id == mail.task_id
        ('queued', True)
        """
        return AsyncEventStream(self.transport, filter_params(filters), after)
