"""TideQ called by the benchmark's lean HTTP client: measures the service without the cost of the Python client."""

import protocol
from tideq_driver import TideqDriver

from bench.http.wire import Connection, connect

TASK = {"task_type": "noop", "parameters": {"sent": 0.0}}


class LeanDriver(TideqDriver):
    async def open(self) -> None:
        await super().open()
        self.port = int(self.settings.service_url.rpartition(":")[2])
        self.idle: list[Connection] = []

    async def submit(self, sent: float) -> None:
        await self._call("/api/v1/tasks", {"task_type": "noop", "parameters": {"sent": sent}})

    async def submit_many(self, count: int) -> None:
        await self._call("/api/v1/tasks/batch", {"tasks": [TASK] * count})

    async def _call(self, path: str, body: object) -> None:
        connection = self.idle.pop() if self.idle else await connect(self.port)
        await connection.call(path, body)
        self.idle.append(connection)


if __name__ == "__main__":
    protocol.main(LeanDriver)
