"""The primary dies, or is away for a while, under load: nothing that was said to be safe is lost, and work goes on."""

import asyncio
import contextlib
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import redis

from tests.chaos.evidence import Evidence, read_history
from tests.chaos.run import RULES
from tests.failover.scene import QUEUE, Scene, open_scene, until
from tests.history.checker import connected
from tideq.queue_core.scripts.keys import Keys

BEFORE, AFTER = 500, 500


async def test_a_primary_that_is_killed_costs_nothing_that_a_replica_had(tmp_path: Path) -> None:
    async with open_scene(tmp_path) as scene:
        async with scene.load():
            await until(lambda: acknowledged(scene, "replica", BEFORE))
            killed_at = time.monotonic()
            await asyncio.to_thread(scene.group.kill_primary)
            replaced_at = time.monotonic()
            count = scene.told.count("replica")
            await until(lambda: acknowledged(scene, "replica", count + AFTER))
        await settled(scene)
        report(scene, killed_at, replaced_at)

        await assert_kept(scene)


async def test_what_a_primary_accepts_that_was_replaced_while_it_was_away_is_not_called_safe(tmp_path: Path) -> None:
    """Frozen, replaced, thawed: until it is told, it takes what is handed to it, and nobody follows it any more."""
    async with open_scene(tmp_path) as scene:
        async with scene.load():
            await until(lambda: acknowledged(scene, "replica", BEFORE))
            await frozen_and_replaced(scene)
            count = scene.told.count("replica")
            await asyncio.to_thread(scene.group.until_demoted)
            await until(lambda: acknowledged(scene, "replica", count + AFTER))
        await settled(scene)

        await assert_kept(scene)


async def frozen_and_replaced(scene: Scene) -> None:
    scene.group.freeze_primary()
    await asyncio.to_thread(scene.group.until_replaced)
    await asyncio.to_thread(scene.group.until_followed)
    scene.group.thaw_primary()


async def acknowledged(scene: Scene, level: str, count: int) -> bool:
    return scene.told.count(level) >= count


async def settled(scene: Scene) -> None:
    """Nothing is live any more, and history has every end."""

    async def is_settled() -> bool:
        with contextlib.suppress(httpx.HTTPError, redis.RedisError):
            async with httpx.AsyncClient(timeout=20) as http:
                answer = await http.get(f"{scene.urls[0]}/api/v1/queue/stats")
            is_empty = answer.status_code == 200 and not any(answer.json()["queue"]["by_state"].values())
            return is_empty and await asyncio.to_thread(is_recorded, scene)
        return False

    await until(is_settled)


def is_recorded(scene: Scene) -> bool:
    """Whether history has all that ever happened: the last tasks can be done before it has heard of any of them."""
    driver: Any = redis.Redis
    with driver.from_url(scene.group.primary_url) as client:
        newest = client.xinfo_stream(Keys(QUEUE).key("outbox"))["last-generated-id"].decode()
    with connected(scene.postgres.database_url, f"tideq_{QUEUE}") as connection:
        return connection.execute("SELECT entry_id FROM checkpoints").fetchall() == [(newest,)]


async def assert_kept(scene: Scene) -> None:
    evidence = Evidence(RULES, [])
    await asyncio.to_thread(read_history, evidence, scene.postgres.database_url, f"tideq_{QUEUE}")
    lost = {
        level: [each for each in ids if each not in evidence.tasks] for level, ids in scene.told.acknowledged.items()
    }
    results = Counter(event.task_id for event in evidence.all_events() if event.state == "completed")

    assert lost["replica"] == []
    assert {row.state for row in evidence.tasks.values()} == {"completed"}
    assert set(results.values()) == {1}, "a result was accepted twice"
    assert not list(broken_paths(evidence))
    assert evidence.parked == 0
    assert_done_by_who_says_so(scene, evidence)
    assert "0 differences" in scene.command("reconcile", "--dry-run")
    sys.stdout.write(f"\nlost at the default durability: {len(lost['store'])} of {scene.told.count('store')}\n")


def broken_paths(evidence: Evidence) -> list[str]:
    return [
        f"{task_id}: {[event.version for event in story]}"
        for task_id, story in evidence.events.items()
        if [event.version for event in story] != list(range(1, len(story) + 1))
    ]


def assert_done_by_who_says_so(scene: Scene, evidence: Evidence) -> None:
    """The result that stands is one that a handler worked out, in the attempt that history has as the last."""
    ended = {(line["task_id"], line["attempt"], line["pid"]) for line in scene.ledger if line["event"] == "end"}
    for task_id, row in evidence.tasks.items():
        assert (task_id, row.result["attempt"], row.result["pid"]) in ended
        assert row.result["attempt"] == evidence.events[task_id][-1].attempt


def report(scene: Scene, killed_at: float, replaced_at: float) -> None:
    first = min(at for at, _ in scene.told.instants if at > replaced_at)
    safe = min(at for at, level in scene.told.instants if at > replaced_at and level == "replica")
    sys.stdout.write(
        f"\nreplaced after {replaced_at - killed_at:.1f} s; accepted again {first - replaced_at:.1f} s later, "
        f"at replica {safe - replaced_at:.1f} s; answers {dict(Counter(scene.told.statuses))}\n"
    )
