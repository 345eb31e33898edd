"""What tests are given: an engine on a store of its own, a clock to move, and the shortest way to common situations."""

from dataclasses import dataclass
from typing import Any

import msgspec

from tideq.queue_core.attempts import Attempts, Failure, LeaseRef, Success
from tideq.queue_core.controls import Controls
from tideq.queue_core.engine import Engine, assemble_engine
from tideq.queue_core.fleet import Fleet
from tideq.queue_core.inspector import Inspector
from tideq.queue_core.invariants import violations
from tideq.queue_core.queue import Queue
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.clock import StoreClock
from tideq.queue_core.task import ClaimedTask, NewTask, Task, WorkerDeclaration


@dataclass(frozen=True)
class Kit:
    client: Any
    settings: QueueSettings
    keys: Keys
    engine: Engine
    clock: StoreClock

    @property
    def queue(self) -> Queue:
        return self.engine.queue

    @property
    def attempts(self) -> Attempts:
        return self.engine.attempts

    @property
    def fleet(self) -> Fleet:
        return self.engine.fleet

    @property
    def controls(self) -> Controls:
        return self.engine.controls

    @property
    def insight(self) -> Inspector:
        return self.engine.insight

    async def submit(self, task_type: str = "resize", **fields: Any) -> str:
        return (await self.queue.submit(NewTask(task_type=task_type, **fields))).task_id

    async def worker(self, worker_id: str = "w1", **fields: Any) -> str:
        await self.fleet.register(WorkerDeclaration(worker_id=worker_id, **fields))
        return worker_id

    async def claimed(self, worker_id: str = "w1", **fields: Any) -> ClaimedTask:
        """The one task that a claim of one gives; the worker must be registered."""
        claim = await self.queue.claim(worker_id, 1, **fields)
        (task,) = claim.tasks
        return task

    async def started(self, worker_id: str = "w1") -> ClaimedTask:
        task = await self.claimed(worker_id)
        await self.start(task, worker_id)
        return task

    async def start(self, task: ClaimedTask, worker_id: str = "w1") -> None:
        (await self.attempts.start(worker_id, [LeaseRef(task.task_id, task.lease)]))[0].unwrap()

    async def complete(self, task: ClaimedTask, worker_id: str = "w1", result: bytes = b"null") -> str:
        outcomes = await self.attempts.complete(worker_id, [Success(task.task_id, task.lease, result)])
        return outcomes[0].unwrap().details[0]

    async def fail(self, task: ClaimedTask, worker_id: str = "w1", **fields: Any) -> str:
        failure = Failure(task.task_id, task.lease, fields.pop("error", b'{"message":"no"}'), **fields)
        return (await self.attempts.fail(worker_id, [failure]))[0].unwrap().details[0]

    async def read(self, task_id: str) -> Task:
        return await self.queue.read(task_id)

    async def dump(self) -> dict[str, Any]:
        """Every key of the queue with its content, to show that nothing changed.

        But for the remembered instant, and what the ledger keeps of each look at the partitions.
        """
        content: dict[str, Any] = {}
        for keys in (part.keys for part in self.engine.parts):
            async for raw in self.client.scan_iter(match=keys.tag.replace("{", "[{]") + "*", count=1000):
                key = raw.decode()
                content[key] = await _content(self.client, key)
            content.get(keys.key("meta"), {}).pop(b"now_ms", None)
            content.pop(keys.key("ledger"), None)
        return content

    async def assert_sound(self) -> None:
        for part in self.engine.parts:
            broken = violations(await part.insight.snapshot())
            assert not broken, "\n".join(broken)


async def _content(client: Any, key: str) -> Any:
    kind = (await client.type(key)).decode()
    readers: dict[str, Any] = {
        "string": lambda: client.get(key),
        "hash": lambda: client.hgetall(key),
        "zset": lambda: client.zrange(key, 0, -1, withscores=True),
        "set": lambda: client.smembers(key),
        "stream": lambda: client.xrange(key),
    }
    return await readers[kind]()


async def make_kit(
    client: Any, queue_name: str, settings: QueueSettings | None = None, *, sends_flags: bool = True
) -> Kit:
    """A kit on a queue of its own, so that many tests share one server without meeting."""
    chosen = msgspec.structs.replace(settings or QueueSettings(), queue_name=queue_name)
    engine = assemble_engine(client, chosen, sends_flags=sends_flags)
    await engine.queue.open()
    return Kit(client, chosen, engine.keys, engine, StoreClock(client, *(part.keys for part in engine.parts)))
