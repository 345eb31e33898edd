"""Situations many tests start from: a task in any state, leases in hand, what the outbox and the store say of tasks."""

from typing import Any, NamedTuple

from tests.kit import Kit
from tideq.queue_core.engine.attempts import Held, Success
from tideq.queue_core.engine.record import Record, parse_record
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import ClaimedTask, NewTask
from tideq.queue_core.transitions import TERMINAL

NEVER_MADE_ID = "01890000-0000-7000-8000-000000000000"
LANES_A_CLIENT = 250
FLEET_KEYS = ("workers", "dead_workers", "serving", "recent", "totals", "meta", "worker:", "stops:", "poll:")


class Event(NamedTuple):
    """One transition as the outbox tells it."""

    task_id: str
    packed: bytes
    body: bytes | None

    @property
    def record(self) -> Record:
        return parse_record(self.packed)

    @property
    def state(self) -> str:
        return self.record.text("state")

    @property
    def reason(self) -> str:
        return self.record.text("reason")


def held(*tasks: ClaimedTask) -> list[Held]:
    return [Held(task.task_id, task.lease) for task in tasks]


async def task_in(kit: Kit, state: TaskState, worker_id: str = "w1") -> ClaimedTask:
    """A task that came into this state after a claim, so that it has a lease to present, current or not."""
    task_id = await kit.submit()
    task = await kit.claimed(worker_id)
    assert task.task_id == task_id, "another task was waiting before this one"
    if state in (TaskState.EXECUTING, TaskState.COMPLETED, TaskState.FAILED, TaskState.DEAD_LETTER):
        await kit.start(task, worker_id)
    match state:
        case TaskState.QUEUED:
            await kit.attempts.release(worker_id, held(task))
        case TaskState.COMPLETED:
            await kit.complete(task, worker_id)
        case TaskState.FAILED:
            await kit.fail(task, worker_id, verdict="fail")
        case TaskState.DEAD_LETTER:
            await kit.fail(task, worker_id, verdict="discard")
        case TaskState.CANCELLED:
            await kit.queue.cancel(task.task_id)
        case _:
            pass
    assert (await kit.read(task.task_id)).state is state
    return task


async def submit_count(kit: Kit, count: int, task_type: str = "resize", **fields: Any) -> list[str]:
    """So many tasks alike, in one submission."""
    submitted = await kit.queue.submit_many([NewTask(task_type=task_type, **fields) for _ in range(count)])
    return [task.task_id for task in submitted]


async def started_count(kit: Kit, count: int, worker_id: str = "w1", **fields: Any) -> list[ClaimedTask]:
    """So many tasks submitted, claimed and started by one worker."""
    await submit_count(kit, count, **fields)
    claim = await kit.queue.claim(worker_id, count)
    assert len(claim.tasks) == count
    await kit.attempts.start(worker_id, held(*claim.tasks))
    return list(claim.tasks)


async def complete_all(kit: Kit, tasks: list[ClaimedTask], worker_id: str = "w1") -> None:
    for outcome in await kit.attempts.complete(worker_id, [Success(task.task_id, task.lease) for task in tasks]):
        outcome.unwrap()


async def ended_types(kit: Kit, count: int, first: int = 0, worker_id: str = "w1") -> list[str]:
    """A completed task of each of so many types, by clients enough to open lanes for them."""
    task_ids: list[str] = []
    for begin in range(first, first + count, LANES_A_CLIENT):
        numbers = range(begin, min(begin + LANES_A_CLIENT, first + count))
        new = [NewTask(task_type=f"type-{number:04}", client_id=f"client-{begin}") for number in numbers]
        await kit.queue.submit_many(new)
        tasks = (await kit.queue.claim(worker_id, len(new))).tasks
        assert len(tasks) == len(new)
        await kit.attempts.start(worker_id, held(*tasks))
        await complete_all(kit, list(tasks), worker_id)
        task_ids += [task.task_id for task in tasks]
    return task_ids


async def claimed_ids(kit: Kit, worker_id: str = "w1", wanted: int = 1_000) -> list[str]:
    return [task.task_id for task in (await kit.queue.claim(worker_id, wanted)).tasks]


async def events(kit: Kit, task_id: str | None = None) -> list[Event]:
    """What the outbox holds, of one task or of all. Read raw: the driver would make a dictionary of the pairs."""
    read = "return redis.call('XRANGE', KEYS[1], '-', '+')"
    told: list[Event] = []
    for part in kit.engine.parts:
        entries: list[Any] = await kit.client.eval(read, 1, part.keys.key("outbox"))
        told += [event for _, fields in entries for event in _events_of(fields)]
    return [event for event in told if task_id in (None, event.task_id)]


async def terminal_events(kit: Kit, task_id: str) -> list[Event]:
    return [event for event in await events(kit, task_id) if event.state in TERMINAL]


async def task_content(kit: Kit) -> dict[str, Any]:
    """Everything the store keeps about tasks, without what it keeps about workers and the recent past."""
    content = await kit.dump()
    return {key: value for key, value in content.items() if not key.removeprefix(kit.keys.tag).startswith(FLEET_KEYS)}


def _events_of(fields: list[bytes]) -> list[Event]:
    told: list[Event] = []
    assert len(set(fields[::2])) == len(fields) / 2, "history takes an entry for a dictionary"
    for name, value in zip(fields[4::2], fields[5::2], strict=True):
        if b":" not in name:
            told.append(Event(name.decode(), value, None))
        elif name.endswith(b":body"):
            told[-1] = told[-1]._replace(body=value)
    return told
