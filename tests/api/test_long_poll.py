"""A poll whose handler is cancelled, as by a server that stops at once; callers that leave: test_delivery.py."""

import asyncio
from typing import Any

import pytest

from tests.api.bench import Bench
from tests.kit import Kit
from tideq.api.service import Service
from tideq.queue_core.task import Claim


@pytest.mark.parametrize("poll_id", [None, "p1"])
@pytest.mark.parametrize("wait_seconds", [0, 20])
async def test_a_poll_cancelled_while_claiming_hands_its_tasks_back(
    service: Service, bench: Bench, kit: Kit, monkeypatch: pytest.MonkeyPatch, poll_id: str | None, wait_seconds: int
) -> None:
    worker_id, task_id = await bench.register(), await bench.submit()
    claiming, claim = asyncio.Event(), service.engine.queue.claim

    async def slow_claim(*arguments: Any, **options: Any) -> Claim:
        claiming.set()
        got = await claim(*arguments, **options)
        await asyncio.sleep(0)
        return got

    monkeypatch.setattr(service.engine.queue, "claim", slow_claim)
    poll = asyncio.create_task(bench.poll(worker_id, wait_seconds=wait_seconds, poll_id=poll_id))
    await claiming.wait()
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll

    task = await kit.read(task_id)
    assert (task.state, task.attempt, task.lane_position) == ("queued", 0, 0)
    assert service.metrics.undelivered_count == 1
