"""A simple worker: polls for one task, starts it, reports its result. The argument is the port.

Ten of these run in one process, on the benchmark's lean HTTP client, to measure the plain worker protocol.
"""

import asyncio
import sys

import msgspec

from bench.http.lives import Claimed, Held, register
from bench.http.wire import Connection, connect

AT_A_TIME = 10


async def main(port: int) -> None:
    await asyncio.gather(*[_work(port) for _ in range(AT_A_TIME)])


async def _work(port: int) -> None:
    connection = await connect(port)
    worker_id = await register(connection, 1, "on-loop")
    while True:
        poll = {"available_capacity": 1, "wait_seconds": 20}
        answer = await connection.call(f"/internal/workers/{worker_id}/poll", poll)
        for task in msgspec.json.decode(answer, type=Claimed).tasks:
            await _do(connection, worker_id, task)


async def _do(connection: Connection, worker_id: str, task: Held) -> None:
    held = msgspec.structs.asdict(task)
    await connection.call(f"/internal/workers/{worker_id}/start", held)
    await connection.call(f"/internal/workers/{worker_id}/result", {**held, "status": "completed", "result": 1})


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
