"""Eight partitions on a cluster of three nodes: order, slots that move under load, a node that goes away."""

import asyncio
import contextlib
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.kit import Kit, make_kit
from tests.partitions.cluster import Cluster, running_cluster
from tests.partitions.test_history_commands import PARTITION_COUNT, Scene
from tideq.queue_core.attempts import LeaseRef, Success
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.scripts.keys import hash_tag, slot_of
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.connect import connect
from tideq.queue_core.task import NewTask
from tideq.queue_core.task_id import partition_of

PRIORITIES = ("high", "medium", "low")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Any]:
    client = connect(cluster.url)
    yield client
    await client.aclose()


@pytest.fixture
async def kit(client: Any) -> AsyncIterator[Kit]:
    kit = await make_kit(client, uuid.uuid4().hex[:12], QueueSettings(partitions=(8,)))
    yield kit
    await kit.assert_sound()


def slot(kit: Kit, partition: int) -> int:
    return slot_of(hash_tag(kit.settings.queue_name, partition))


async def submit_mixed(kit: Kit, count: int) -> list[tuple[int, str]]:
    chance = random.Random(count)
    tasks = [
        NewTask(task_type="resize", priority=chance.choice(PRIORITIES), head_start_ms=chance.randrange(50_000))
        for _ in range(count)
    ]
    answers = await asyncio.gather(*map(kit.queue.submit, tasks))
    return sorted((answer.rank or 0, answer.task_id) for answer in answers)


async def test_partitions_lie_on_all_nodes(kit: Kit, cluster: Cluster) -> None:
    owners = Counter(cluster.owner_of(slot(kit, partition)) for partition in range(8))

    assert sorted(owners.values()) == [2, 3, 3]


async def test_claims_follow_the_global_order(kit: Kit) -> None:
    expected = [task_id for _, task_id in await submit_mixed(kit, 150)]
    await kit.worker(capacity=1_000)

    taken: list[str] = []
    for size in (1, 10, 3, 64, 7, 100):
        taken += [task.task_id for task in (await kit.queue.claim("w1", size)).tasks]

    assert taken == expected


async def test_slots_that_move_under_load_lose_nothing_and_double_nothing(kit: Kit, cluster: Cluster) -> None:
    """Producers submit, workers claim, start and finish, and all the while slots go round the nodes."""
    submitted: list[str] = []
    finished: Counter[str] = Counter()
    is_over, errors = asyncio.Event(), list[str]()
    moves: list[int] = []

    async def produce() -> None:
        while len(moves) < 4:
            answers = await kit.queue.submit_many([NewTask(task_type="resize")] * 3)
            submitted.extend(answer.task_id for answer in answers)
            await asyncio.sleep(0.005)

    async def work(worker_id: str) -> None:
        await kit.worker(worker_id, capacity=100)
        while not (is_over.is_set() and (await kit.insight.backlog()).ready == 0):
            claim = await kit.queue.claim(worker_id, 10)
            held = [LeaseRef(task.task_id, task.lease) for task in claim.tasks]
            if not held:
                await asyncio.sleep(0.01)
                continue
            errors.extend(str(each.error) for each in await kit.attempts.start(worker_id, held) if each.error)
            done = await kit.attempts.complete(worker_id, [Success(*each) for each in held])
            finished.update(each.task_id for each in done if each.error is None)
            errors.extend(str(each.error) for each in done if each.error)

    async def move_slots() -> None:
        while len(moves) < 4:
            chosen = slot(kit, len(moves))
            owner = await asyncio.to_thread(cluster.owner_of, chosen)
            await asyncio.to_thread(cluster.migrate, chosen, (owner + 1) % 3)
            moves.append(chosen)

    workers = [asyncio.create_task(work(f"w{number}")) for number in range(3)]
    await asyncio.gather(move_slots(), produce(), produce())
    is_over.set()
    await asyncio.gather(*workers)

    assert errors == []
    assert set(finished) == set(submitted)
    assert set(finished.values()) == {1}
    stats = await kit.insight.stats()
    assert (stats.total_depth, stats.by_state, stats.recent["completed"]) == (
        0,
        {"queued": 0, "assigned": 0, "executing": 0},
        len(submitted),
    )


async def test_replicators_that_linger_on_any_node_are_hurried(cluster: Cluster, database_url: str) -> None:
    scene = Scene(cluster.url, database_url)
    await scene.prepare()

    async with scene.opened() as kit:
        ids = [await kit.submit() for _ in range(24)]

    async with scene.database() as database, database.session() as connection:
        found = await (await connection.execute("SELECT task_id::text FROM tasks")).fetchall()
    assert len({partition_of(task_id) for task_id in ids}) == PARTITION_COUNT
    assert {task_id for (task_id,) in found} == {*ids}


class TestOneNodeDown:
    @pytest.fixture
    def cluster(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
        """Its own, since the others need all nodes."""
        with running_cluster(tmp_path_factory.mktemp("wounded")) as cluster:
            yield cluster

    @pytest.fixture
    async def kit(self, client: Any) -> Kit:
        return await make_kit(client, uuid.uuid4().hex[:12], QueueSettings(partitions=(8,)))

    async def test_the_others_take_submissions_and_serve_what_they_have(self, kit: Kit, cluster: Cluster) -> None:
        before = [task_id for _, task_id in await submit_mixed(kit, 80)]
        await kit.worker(capacity=1_000)
        lost = {partition for partition in range(8) if cluster.owner_of(slot(kit, partition)) == 1}
        cluster.stop(1)

        accepted: list[str] = []
        for _ in range(60):
            with contextlib.suppress(Unavailable):
                accepted.append((await kit.queue.submit(NewTask(task_type="resize"))).task_id)

        assert len(accepted) >= 60 - len(lost)
        assert not lost & {partition_of(task_id) for task_id in accepted}
        served = [task_id for task_id in before if partition_of(task_id) not in lost]
        taken: list[str] = []
        while claim := (await kit.queue.claim("w1", 20)).tasks:
            taken += [task.task_id for task in claim]
        assert set(taken) == {*served, *accepted}
