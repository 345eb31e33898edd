"""`client.workers`: the fleet."""

from collections.abc import Sequence

from tideq.client._async.listing import AsyncListing
from tideq.client._async.transport import AsyncTransport
from tideq.client.calls import workers as calls
from tideq.client.calls.listing import several
from tideq.client.models.fleet import Drained, WorkerInfo
from tideq.client.options import strict


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
