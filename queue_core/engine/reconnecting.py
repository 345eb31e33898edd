"""Connections that are given up, so that the next command goes to whoever the address means by then."""

from typing import Any


async def connect_anew(client: Any) -> None:
    """Idle ones only. Sentinels may have named another server; a cluster's client finds that out by itself."""
    pool = getattr(client, "connection_pool", None)
    if pool is not None:
        await pool.disconnect(inuse_connections=False)
