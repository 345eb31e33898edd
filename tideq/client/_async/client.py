"""The client: everything the service offers to those who hand in work, look at it and watch over it."""

import ssl
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack

import anyio

from tideq.client._async.dlq import AsyncDlq
from tideq.client._async.events import AsyncEventStream
from tideq.client._async.listing import AsyncListing
from tideq.client._async.queue import AsyncQueue
from tideq.client._async.transport import AsyncTransport
from tideq.client._async.workers import AsyncWorkers
from tideq.client.calls import listing, submission
from tideq.client.calls import tasks as calls
from tideq.client.calls.events import EventFilter, filter_params
from tideq.client.calls.listing import TaskFilter, several
from tideq.client.config import Timeouts, client_config
from tideq.client.deadline import Deadline
from tideq.client.errors import InvalidRequest, TideqError
from tideq.client.models.tasks import Cancelled, Explanation, NewTask, Retried, Status, Submitted, Task, TaskOptions
from tideq.client.options import strict
from tideq.client.retrying import RetryPolicy
from tideq.client.submit_batcher_of_client import AsyncRequestBatcher
from tideq.client.trace_headers import trace_headers


@strict
class AsyncClient:
    """A TideQ service, over HTTP. Make one and keep it: it has one pool of connections, which calls share.

    `url` and `api_key` default to TIDEQ_URL and TIDEQ_API_KEY. What fails for a passing reason is tried again, for as
    long as `retries` allows, so that a task is submitted once, however often its submission had to be sent.

    >>> from tideq import AsyncClient
    >>> async with AsyncClient() as client:
    ...     submitted = await client.submit("resize", {"url": "https://example.org/a.png", "width": 640})
    ...     task = await client.wait(submitted.task_id, timeout_seconds=60)
    >>> task.status, task.result
    ('completed', {'width': 640})

    Errors are of one tree, see `tideq.client.errors`. The queue as a whole is under `client.queue`, dead letters under
    `client.dlq`, the fleet under `client.workers`.
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
        """Hand in one task. `NewTask` says what the options mean.

        Where the answer was lost it is sent again under the same idempotency key: one is made unless you give one.
        Raises DurabilityNotReached where the task stands but is less safe than asked for.

        Coroutines that submit at the same time share requests, and each task is still taken or refused by itself.
        Threads do not: many tasks are handed in by `submit_many`.

        >>> mail = await client.submit("mail", {"to": "ann@example.org"}, priority="high", delay_seconds=3600)
        >>> mail.status
        'queued'
        """
        task = NewTask(task_type, {} if parameters is None else parameters, **options)
        return await self._submissions.submit(task, trace_headers())

    async def submit_many(
        self, tasks: Iterable[NewTask], *, idempotency_key: str | None = None
    ) -> tuple[Submitted, ...]:
        """Hand in any number of tasks, in as few calls as can be; answers come in the same order.

        Each call takes up to 1 000 tasks, all or none. Should one fail, the error's `submitted` says what stands. With
        an `idempotency_key` of your own the same tasks can simply be handed in again: none is made twice.

        >>> from tideq.client import NewTask
        >>> len(await client.submit_many(NewTask("crawl", {"page": number}) for number in range(2500)))
        2500
        """
        key, trace, submitted = idempotency_key or submission.new_key(), trace_headers(), list[Submitted]()
        for batch in submission.batches(tasks):
            try:
                submitted += await self.transport.ask(submission.submit_batch(batch, key, trace))
            except TideqError as error:
                if isinstance(error, InvalidRequest):
                    submission.placed(error, batch.first)
                error.submitted = tuple(submitted)
                if submitted:
                    error.add_note(f"{len(submitted)} tasks stand: the error's `submitted` has them")
                raise
        return tuple(submitted)

    async def get(self, task_id: str, *, history: bool = False) -> Task:
        """A task as it is now; with `history`, with every transition it made. Raises NotFound.

        >>> task = await client.get(submitted.task_id, history=True)
        >>> [change.state for change in task.state_history]
        ['queued', 'assigned', 'executing', 'completed']
        """
        return await self.transport.ask(calls.read(task_id, history=history))

    async def wait(self, task_id: str, timeout_seconds: float | None = None) -> Task:
        """The task once it is finished, or as it is when the time is up; None waits for ever.

        It need not have succeeded: look at `has_succeeded`, or at `status` and `error`.
        """
        patience = Deadline(timeout_seconds)
        while True:
            task = await self.transport.ask(calls.wait(task_id, patience.next_poll), within_seconds=patience.left)
            if task.is_done or patience.is_over:
                return task
            await anyio.sleep(patience.breath)

    def list(self, *, page_size: int = 100, count: bool = False, **wanted: Unpack[TaskFilter]) -> AsyncListing[Task]:
        """Tasks by any filters together, newest first, fetched while they are read. `TaskFilter` says which there are.

        >>> async for task in client.list(status=["completed", "failed"], task_type="resize"):
        ...     print(task.status, task.parameters["width"])
        completed 640
        """
        return AsyncListing(self.transport, lambda cursor: listing.tasks(wanted, page_size, cursor, count=count))

    async def cancel(self, task_id: str) -> Cancelled:
        """Call a live task off; its worker is told. Raises Conflict for one that is finished.

        >>> (await client.cancel(mail.task_id)).was_executing
        False
        """
        return await self.transport.ask(calls.cancel(task_id))

    async def purge(self, task_id: str) -> None:
        """Remove a finished task for good. Raises Conflict for one that is not finished."""
        await self.transport.ask(calls.purge(task_id))

    async def retry(self, task_id: str, *, reset_retry_count: bool = True, new_priority: str | None = None) -> Retried:
        """Run a failed, dead or cancelled task again, with fresh budgets unless told otherwise.

        >>> (await client.retry(mail.task_id, new_priority="high")).status
        'queued'
        """
        return await self.transport.ask(
            calls.retry(task_id, reset_retry_count=reset_retry_count, new_priority=new_priority)
        )

    async def explain(self, task_id: str) -> Explanation:
        """Why a task is where it is, and what holds it back.

        >>> (await client.explain(mail.task_id)).held_back_by
        ('no active worker serves mail',)
        """
        return await self.transport.ask(calls.explain(task_id))

    async def clean_up(
        self,
        older_than: datetime | timedelta,
        *,
        status: Status | Sequence[Status] = (),
        task_type: str | None = None,
    ) -> int:
        """Remove finished tasks that ended before an instant, or longer ago than this; how many went. Admins only.

        >>> from datetime import timedelta
        >>> await client.clean_up(timedelta(days=30), status="completed")
        0
        """
        return (await self.transport.ask(calls.clean_up(older_than, several(status), task_type))).deleted

    def events(self, *, after: str | None = None, **wanted: Unpack[EventFilter]) -> AsyncEventStream:
        """Transitions as they happen, from now on or after an event you have; broken connections are made again.

        >>> async with client.events(task_type="mail") as events:
        ...     mail = await client.submit("mail", {"to": "eve@example.org"})
        ...     event = await anext(events)
        >>> event.status, event.task_id == mail.task_id
        ('queued', True)
        """
        return AsyncEventStream(self.transport, filter_params(wanted), after)
