"""Runs one example's coroutine on a fresh queue of a real store, and checks the invariants when it is done."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings

from tests.kit import Kit, make_kit
from tideq.queue_core.settings import QueueSettings

QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large]


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None, database=None, print_blob=True, suppress_health_check=QUICK)


@dataclass(frozen=True)
class Bench:
    runner: asyncio.Runner
    client: Any

    def run(self, example: Callable[[Kit], Awaitable[None]], settings: QueueSettings | None = None) -> None:
        self.runner.run(self._on_a_fresh_queue(example, settings))

    async def _on_a_fresh_queue(
        self, example: Callable[[Kit], Awaitable[None]], settings: QueueSettings | None
    ) -> None:
        kit = await make_kit(self.client, f"order-{uuid.uuid4().hex[:12]}", settings)
        await example(kit)
        await kit.assert_sound()
