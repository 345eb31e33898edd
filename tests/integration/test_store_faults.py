"""What survives when the store itself is in trouble: killed, full, flushed, or with a clock that jumps."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.kit import Kit, make_kit
from tideq.embedded import EmbeddedStores, ValkeyOptions, bundled_valkey, find_running
from tideq.queue_core.errors import StoreFull, StoreReplaced, StoreUnavailable
from tideq.queue_core.states import TaskState
from tideq.queue_core.store.connect import connect
from tideq.queue_core.store.memory import MemoryWatch
from tideq.queue_core.task import NewTask

OPTIONS = ValkeyOptions(binary=bundled_valkey())


def kill_server(data_dir: Path) -> None:
    running = find_running(data_dir)
    assert running is not None
    (pid,) = running.server_pids
    os.kill(pid, signal.SIGKILL)


async def test_everything_acknowledged_survives_kills_of_the_store(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    for round_number in range(5):
        with EmbeddedStores(tmp_path, valkey=OPTIONS, postgres=None) as stores:
            client = connect(stores.redis_url)
            kit = await make_kit(client, "default")
            await kit.worker(f"w{round_number}")
            with pytest.raises(StoreUnavailable):
                await _work_until_killed(kit, f"w{round_number}", acknowledged, tmp_path)
            await client.aclose()

    with EmbeddedStores(tmp_path, valkey=OPTIONS, postgres=None) as stores:
        client = connect(stores.redis_url)
        kit = await make_kit(client, "default")
        found = await kit.queue.read_many(acknowledged)
        await kit.assert_sound()
        await client.aclose()

    assert len(acknowledged) > 300
    assert [task for task in found if task is None] == []


async def _work_until_killed(kit: Kit, worker_id: str, acknowledged: list[str], data_dir: Path) -> None:
    for step in range(10_000):
        acknowledged.append(await kit.submit())
        if step % 3 == 0:
            await kit.start(await kit.claimed(worker_id), worker_id)
        if step == 60:
            kill_server(data_dir)


async def test_a_full_store_refuses_submissions_whole_and_drains_itself(tmp_path: Path) -> None:
    full = ValkeyOptions(binary=bundled_valkey(), flags=("--maxmemory", "24mb"))
    with EmbeddedStores(tmp_path, valkey=full, postgres=None) as stores:
        client = connect(stores.redis_url)
        kit = await make_kit(client, "default")
        await kit.worker()
        submitted = await _fill(kit)
        before = await kit.client.zcard(kit.keys.key("queue"))

        finished = 0
        while claim := (await kit.queue.claim("w1", 100)).tasks:
            for task in claim[:20]:
                await kit.start(task)
                await kit.complete(task)
                finished += 1
            if finished >= 200:
                break

        assert before == submitted
        assert finished >= 200
        await kit.assert_sound()
        await client.aclose()


async def _fill(kit: Kit) -> int:
    submitted = 0
    with contextlib.suppress(StoreFull):
        while submitted < 1_000_000:
            await kit.queue.submit_many([NewTask(task_type="fill", parameters=b'"%s"' % (b"x" * 4_000))] * 100)
            submitted += 100
    assert submitted < 1_000_000
    return submitted


async def test_memory_near_its_limit_closes_submission_and_frees_it_again(tmp_path: Path) -> None:
    options = ValkeyOptions(binary=bundled_valkey(), flags=("--maxmemory", "1gb"))
    with EmbeddedStores(tmp_path, valkey=options, postgres=None) as stores:
        client = connect(stores.redis_url)
        kit = await make_kit(client, "default")

        await MemoryWatch(client, [kit.engine.scripts], max_ratio=1e-9).observe()
        with pytest.raises(StoreFull):
            await kit.submit()

        ratio = await MemoryWatch(client, [kit.engine.scripts], max_ratio=0.9).observe()
        assert 0 < ratio < 0.9
        await kit.submit()
        await client.aclose()


async def test_a_wiped_store_refuses_everything_until_it_is_opened_anew(kit: Kit) -> None:
    await kit.submit()
    await kit.client.delete(kit.keys.key("meta"))

    with pytest.raises(StoreReplaced):
        await kit.submit()
    with pytest.raises(StoreReplaced):
        await kit.queue.sweep()

    await kit.queue.open("2")
    await kit.submit()


async def test_the_queues_time_never_runs_backwards(kit: Kit) -> None:
    await kit.worker()
    await kit.submit()
    held = await kit.started()
    before = (await kit.queue.submit(NewTask(task_type="resize"))).now_ms

    await kit.clock.advance(-3_600_000)

    assert (await kit.queue.submit(NewTask(task_type="resize"))).now_ms >= before
    assert (await kit.read(held.task_id)).state is TaskState.EXECUTING


async def test_a_member_without_a_record_does_not_stop_the_others(kit: Kit) -> None:
    await kit.worker()
    lost, kept = await kit.submit(), await kit.submit()
    await kit.client.hdel(kit.keys.key("records"), lost)
    # Its count goes with it: nothing knows any more which lane it was in.
    await kit.client.hincrby(kit.keys.key("counts"), "queued", -1)
    await kit.client.hincrby(kit.keys.key("counts"), "0:queued", -1)
    (bucket,) = await kit.client.hkeys(kit.keys.key("ages"))
    await kit.client.hincrby(kit.keys.key("ages"), bucket, -1)

    claim = await kit.queue.claim("w1", 2)

    assert [task.task_id for task in claim.tasks] == [kept]
