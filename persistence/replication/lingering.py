"""Waiting a little for more before a batch is written, unless somebody waits for it.

What a batch costs besides its events is shared by all of them, and a task that changes several times within one is
written once: beside a busy service that halves what history takes from it. Nobody who asks for history is kept
waiting: they say so, and whoever lingers goes on at once.
"""

import asyncio

from tideq.queue_core.outbox.consumer import OutboxConsumer

MAX_WAIT_MS = 1_000
"""Of one read: in a cluster its connection takes a longer silence for a server that is gone."""


async def linger_over(feed: OutboxConsumer, linger_ms: int) -> None:
    now = asyncio.get_running_loop().time
    until = now() + linger_ms / 1000
    while (left_ms := round((until - now()) * 1000)) > 0:
        if await feed.flush_requested(min(left_ms, MAX_WAIT_MS)):
            return
