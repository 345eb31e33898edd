"""A client process: `python -m bench.http.client` reads its job, connects, prints `ready`, starts at the next line."""

import asyncio
import sys

import msgspec
import uvloop

from bench.http import delivery, lives
from bench.http.jobs import Deliveries, Done, Job, Lives, Repeat
from bench.http.wire import Connection, connect, post


class Repeating:
    def __init__(self, job: Repeat) -> None:
        self._job = job
        self._request = post(job.path, job.body.encode())
        self._connections: list[Connection] = []

    async def prepare(self) -> None:
        self._connections = [await connect(self._job.port) for _ in range(self._job.connections)]

    async def run(self) -> Done:
        self._left = self._job.times
        await asyncio.gather(*map(self._repeat, self._connections))
        return Done({})

    async def _repeat(self, connection: Connection) -> None:
        while self._left > 0:
            self._left -= 1
            await connection.request(self._request)


def worker_for(job: Job) -> "Repeating | lives.Living | delivery.Delivering":
    match job:
        case Repeat():
            return Repeating(job)
        case Lives():
            return lives.Living(job)
        case Deliveries():
            return delivery.Delivering(job)


async def main() -> None:
    work = worker_for(msgspec.json.decode(sys.stdin.readline(), type=Job))
    await work.prepare()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.buffer.write(msgspec.json.encode(await work.run()) + b"\n")


if __name__ == "__main__":
    uvloop.run(main())
