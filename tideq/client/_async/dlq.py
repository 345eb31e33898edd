"""`client.dlq`: dead letters."""

from typing import Unpack

from tideq.client._async.listing import AsyncListing
from tideq.client._async.transport import AsyncTransport
from tideq.client.calls import dlq as calls
from tideq.client.calls.dlq import DeadLetterFilter
from tideq.client.models.dead_letters import DeadLetter, Pattern, Replayed
from tideq.client.models.tasks import Retried
from tideq.client.options import strict


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
        return AsyncListing(self._transport, lambda cursor: calls.dead_letters(filters, page_size, cursor, count=count))

    async def patterns(self) -> tuple[Pattern, ...]:
        """Returns the patterns of dead letters, the most frequent first."""
        return await self._transport.request(calls.patterns())

    async def replay(self, task_id: str, *, reset_retry_count: bool = True, new_priority: str | None = None) -> Retried:
        """Replays one dead letter, by default with fresh budgets."""
        return await self._transport.request(
            calls.replay(task_id, reset_retry_count=reset_retry_count, new_priority=new_priority)
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
            calls.replay_all(filters, reset_retry_count=reset_retry_count, new_priority=new_priority, dry_run=dry_run)
        )
