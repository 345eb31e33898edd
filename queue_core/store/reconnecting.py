"""Connections that are given up, so that the next command goes to whoever the address means by then."""

import asyncio
from typing import Any

from tideq.queue_core.store.line import StoreClient


async def drop_idle_connections(client: Any) -> None:
    """Idle ones, and the lines once they are.

    Sentinels may have named another server; a cluster's client finds that out by itself.

    They are taken out of the pool before any is closed: the driver's own `disconnect` leaves them there meanwhile, and
    whoever takes one then is cut off in the middle of a command.
    """
    if isinstance(client, StoreClient):
        client.renew_lines()
    pool = getattr(client, "connection_pool", None)
    if pool is not None:
        idle, pool._available_connections = pool._available_connections, []
        await asyncio.gather(*(connection.disconnect() for connection in idle), return_exceptions=True)
