"""Connections that pack commands by hiredis, and say of a lost connection that it is lost.

The driver packs in Python, argument by argument: 372 µs for a batch of 100, not 60.
"""

import functools
from typing import Any

import hiredis
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError

from tideq.queue_core.store.driver_errors import mark_unsent

untyped: Any = hiredis


def packing(pool: Any) -> Any:
    """The same pool, whose connections pack in C."""
    pool.connection_class = _packing(pool.connection_class)
    return pool


def packing_cluster(client: Any, **options: Any) -> Any:
    """The same client of a cluster, which makes its connections itself: those of all nodes, now and later."""
    client.connection_kwargs["connection_class"] = _packing(client.connection_kwargs["connection_class"])
    client.connection_kwargs.update(options)
    for node in client.nodes_manager.startup_nodes.values():
        packing(node).connection_kwargs.update(options)
    return client


@functools.cache
def _packing(kind: Any) -> Any:
    class Packing(kind):
        def pack_command(self, *args: Any) -> list[bytes]:
            """Commands of two words, and values of other types, are left to the driver."""
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
            """Of a connection that is gone uvloop says RuntimeError where asyncio says OSError; nothing was sent."""
            driver: Any = super()
            try:
                await driver.send_packed_command(command, check_health)
            except RuntimeError as error:
                raise ConnectionLost(str(error)) from error

    return Packing
