"""`client.dlq`: what was given up."""

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
        self, *, page_size: int = 100, count: bool = False, **wanted: Unpack[DeadLetterFilter]
    ) -> AsyncListing[DeadLetter]:
        """Tasks that were given up and not yet sent back, the latest death first.

        >>> [letter.error.message async for letter in client.dlq.list(task_type="resize")]
        []
        """
        return AsyncListing(self._transport, lambda cursor: calls.dead_letters(wanted, page_size, cursor, count=count))

    async def patterns(self) -> tuple[Pattern, ...]:
        """The ways tasks died, the most frequent first; what was never seen before is new."""
        return await self._transport.ask(calls.patterns())

    async def replay(self, task_id: str, *, reset_retry_count: bool = True, new_priority: str | None = None) -> Retried:
        """Send one dead letter back to the queue, with fresh budgets unless told otherwise."""
        return await self._transport.ask(
            calls.replay(task_id, reset_retry_count=reset_retry_count, new_priority=new_priority)
        )

    async def replay_all(
        self,
        *,
        dry_run: bool = False,
        reset_retry_count: bool = True,
        new_priority: str | None = None,
        **wanted: Unpack[DeadLetterFilter],
    ) -> Replayed:
        """Send back every dead letter that matches, or with `dry_run` only tell how many do.

        Without any filter that is every one. Interrupted, it can be called again: each gets one new life.

        >>> (await client.dlq.replay_all(task_type="resize", dry_run=True)).matched
        0
        """
        return await self._transport.ask(
            calls.replay_all(wanted, reset_retry_count=reset_retry_count, new_priority=new_priority, dry_run=dry_run)
        )
