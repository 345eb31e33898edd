"""Connections that pack commands with hiredis, and report every lost connection as ConnectionError.

The driver packs in Python: 372 µs for a batch of 100, against 60 µs here.
"""

import functools
from typing import Any

import hiredis
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError

from tideq.queue_core.store.driver_errors import mark_unsent

untyped: Any = hiredis


def packing(pool: Any) -> Any:
    """Returns the same pool, with connections that pack in C."""
    pool.connection_class = _packing(pool.connection_class)
    return pool


def packing_cluster(client: Any, **options: Any) -> Any:
    """Returns the same cluster client; all its connections, also those to nodes found later, pack in C."""
    client.connection_kwargs["connection_class"] = _packing(client.connection_kwargs["connection_class"])
    client.connection_kwargs.update(options)
    for node in client.nodes_manager.startup_nodes.values():
        packing(node).connection_kwargs.update(options)
    return client


@functools.cache
def _packing(kind: Any) -> Any:
    class Packing(kind):
        def pack_command(self, *args: Any) -> list[bytes]:
            """Leaves commands of two words, and values of other types, to the driver."""
            driver: Any = super()
            if " " in args[0]:
                return driver.pack_command(*args)
            try:
                return [untyped.pack_command(args)]
            except TypeError:
                return driver.pack_command(*args)

        async def connect(self) -> None:
            driver: Any = super()
            try:
                await driver.connect()
            except (RedisError, OSError) as error:
                mark_unsent(error)
                raise

        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            """Raises ConnectionError for a closed connection: uvloop raises RuntimeError, asyncio OSError."""
            driver: Any = super()
            try:
                await driver.send_packed_command(command, check_health)
            except RuntimeError as error:
                raise ConnectionLost(str(error)) from error

    return Packing
