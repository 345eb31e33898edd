"""A replicator beside the service, which a test may stop and start again."""

from contextlib import AsyncExitStack

from tests.api.bench import until
from tideq.api.service import Service
from tideq.persistence.history import History
from tideq.persistence.recovery.open_store import replicators_of
from tideq.queue_core.background import background_task


class Replication:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._at_work = AsyncExitStack()

    @property
    def archive(self) -> History:
        assert self._service.history is not None
        return self._service.history

    async def start(self) -> None:
        settings = self._service.settings
        replicator = await self._at_work.enter_async_context(replicators_of(self._service.store, settings.redis_url))
        await self._at_work.enter_async_context(background_task(replicator.run_for_ever()))

    async def stop(self) -> None:
        await self._at_work.aclose()

    async def done(self) -> None:
        """History has everything."""

        async def is_done() -> bool:
            return await self.archive.lag.wait_until_caught_up(0)

        await until(is_done)

    async def forgotten(self, *task_ids: str) -> None:
        """These tasks ended, and the store has forgotten them: the settings should let it do so soon."""
        queue = self._service.engine.queue
        await self.done()

        async def are_gone() -> bool:
            await queue.sweep()
            return await queue.read_many(task_ids) == [None] * len(task_ids)

        await until(are_gone)
