"""A queue with something of everything in it, for a rebuild to bring back."""

from collections.abc import Iterable
from dataclasses import dataclass

from tests.contract.situations import held
from tests.kit import Kit
from tideq.queue_core.attempts import Failure, Success
from tideq.queue_core.invariants import Snapshot
from tideq.queue_core.settings import Admission, QueueSettings
from tideq.queue_core.store.access_keys import AccessKeys
from tideq.queue_core.task import ClaimedTask, NewTask

ROOMY = QueueSettings(admission=Admission(soft_depth=10**7, high_only_depth=10**7, max_depth=10**7))
KEYED = [NewTask(task_type="keyed", idempotency_key=f"key-{number}") for number in range(20)]
SHARED = [NewTask(task_type="keyed", idempotency_key=f"batch/{place}", batch_size=5) for place in (0, 1, 2, 3, "")]
ERROR = b'{"message":"not yet"}'
BATCH = 1_000


@dataclass(frozen=True)
class Population:
    keyed: list[str]
    shared: list[str]
    """A batch with one key."""
    assigned: tuple[ClaimedTask, ...]
    executing: tuple[ClaimedTask, ...]
    retrying: tuple[ClaimedTask, ...]
    dead: tuple[ClaimedTask, ...]
    before: Snapshot
    """When all of it was there."""
    live: dict[str, tuple[str, ...]]


async def populate(kit: Kit, live_count: int) -> Population:
    """Tasks in every state and of every kind; workers, keys, pauses and limits beside them."""
    keyed = [each.task_id for each in await kit.queue.submit_many(KEYED)]
    shared = [each.task_id for each in await kit.queue.submit_many(SHARED)]
    for start in range(0, live_count - len(keyed) - len(shared) + 50, BATCH):
        await kit.queue.submit_many([_waiting(number) for number in range(start, start + BATCH)])
    await kit.queue.submit_many([NewTask(task_type="held", priority="high") for _ in range(200)])
    await kit.worker("w1", task_types=("held",), capacity=500)
    await kit.worker("w2", task_types=("held",), capabilities=("gpu",), capacity=500, version="1.2.3")
    await kit.fleet.drain("w2")
    executing, assigned, retrying, dead, completed = [await _claim(kit, count) for count in (50, 50, 30, 30, 40)]
    for group in (executing, retrying, dead, completed):
        await kit.attempts.start("w1", held(*group))
    await kit.attempts.fail("w1", [Failure(*each, ERROR) for each in held(*retrying)])
    await kit.attempts.fail("w1", [Failure(*each, ERROR, verdict="discard") for each in held(*dead)])
    await kit.attempts.complete("w1", [Success(*each) for each in held(*completed)])
    await kit.controls.pause("low-type", reason="by hand", by="ann")
    await kit.controls.limit(tasks_per_second=1_000, max_executing=5_000)
    await AccessKeys(kit.client, kit.keys).create("ann", "admin", 1)
    before = await kit.insight.snapshot()
    return Population(keyed, shared, assigned, executing, retrying, dead, before, standing(before))


def _waiting(number: int) -> NewTask:
    return NewTask(
        task_type=("resize", "crop", "low-type")[number % 3],
        parameters=b'{"n":%d}' % number,
        priority=("high", "medium", "low")[number % 7 % 3],
        required_capabilities=("gpu",) if number % 11 == 0 else (),
        head_start_ms=number % 13 * 1_000,
        tags={"n": str(number % 5)} if number % 10 == 0 else {},
        delay_ms=3_600_000 if number % 50 == 0 else None,
    )


async def _claim(kit: Kit, count: int) -> tuple[ClaimedTask, ...]:
    tasks = (await kit.queue.claim("w1", count)).tasks
    assert len(tasks) == count
    return tasks


def standing(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """What a rebuild must bring back of every live task. Lanes are numbered anew; a held task may get more time."""
    names = ("state", "version", "rank", "attempt", "lease", "worker", "retries", "age_bucket", "idempotency")
    return {
        task_id: (
            *(snapshot.records[task_id][name] for name in names),
            snapshot.lane_names[int(snapshot.records[task_id]["lane"])],
        )
        for task_id in snapshot.queue
    }


def line_up(snapshot: Snapshot, task_ids: Iterable[str]) -> tuple[list[int], dict[str, list[str]]]:
    """Their ranks in this order, and the order in each lane: ties between lanes are nobody's promise."""
    ranks: list[int] = []
    lanes: dict[str, list[str]] = {}
    for task_id in task_ids:
        record = snapshot.records[task_id]
        ranks.append(int(record["rank"]))
        lanes.setdefault(snapshot.lane_names[int(record["lane"])], []).append(task_id)
    return ranks, lanes


def claim_order(snapshot: Snapshot) -> list[str]:
    """Tasks that are ready, by rank, ties by id."""
    ready = [task_id for task_id, score in snapshot.queue.items() if score < 0]
    return sorted(ready, key=lambda task_id: (int(snapshot.records[task_id]["rank"]), task_id))
