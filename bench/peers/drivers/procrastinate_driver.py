"""Procrastinate on PostgreSQL. `batch_defer` is its bulk call; finished tasks are deleted."""

import asyncio

import procrastinate
import protocol

LEFT = "SELECT count(*) AS count FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"


class ProcrastinateDriver(protocol.Driver):
    distribution = "procrastinate"

    def __init__(self, settings: object) -> None:
        super().__init__(settings)
        connector = procrastinate.PsycopgConnector(conninfo=self.settings.database_url, max_size=20)
        self.app = procrastinate.App(connector=connector)
        self.noop = self.app.task(_noop, name="noop")

    async def open(self) -> None:
        await self.app.open_async()
        await self.app.schema_manager.apply_schema_async()

    async def submit(self, sent: float) -> None:
        await self.noop.defer_async(sent=sent)

    async def submit_many(self, count: int) -> None:
        await self.noop.batch_defer_async(*[{"sent": 0.0}] * count)

    async def left(self) -> int:
        return (await self.app.connector.execute_query_one_async(LEFT))["count"]

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        async with self.app.open_async():
            await self.app.run_worker_async(concurrency=self.settings.concurrency, delete_jobs="always")


async def _noop(sent: float) -> None:
    protocol.handle(sent)


if __name__ == "__main__":
    protocol.main(ProcrastinateDriver)
