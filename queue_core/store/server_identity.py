"""Which run of which server a process may talk to.

A server that restarted or was promoted may have come back with less than it had. So every new connection asks the
server who it is, and is refused until its content was compared with history (see `persistence/recovery/store_guard.py`).
The epoch guard in the scripts cannot do this: a store that merely lost its last seconds still has its epoch.
"""

import asyncio
from typing import Any, NamedTuple

from redis.exceptions import ConnectionError as StoreConnectionError

from tideq.queue_core.scripts.replies import text


class TrustedServers:
    """`doubt` is set as soon as an unknown server answers; `trust` lets it in."""

    def __init__(self) -> None:
        self.doubt = asyncio.Event()
        self._trusted: frozenset[str] = frozenset()

    def trust(self, *identities: str) -> None:
        """These and no others."""
        self._trusted = frozenset(identities)
        self.doubt.clear()

    async def check(self, connection: Any) -> None:
        """What the driver calls for every new connection, before any command."""
        await connection.on_connect()
        await connection.send_command("INFO", "server", "replication")
        if identity_in(text(await connection.read_response())) not in self._trusted:
            self.doubt.set()
            raise StoreConnectionError("the store has restarted and is being compared with history")


class ServerInfo(NamedTuple):
    """What a server says of itself."""

    identity: str
    was_replica: bool
    """It took over from another server, which may still run and not know."""


async def server_info_of(client: Any, node: Any = None) -> ServerInfo:
    """Of the server, or of one node of a cluster."""
    told = await client.info("server", "replication", **({} if node is None else {"target_nodes": node}))
    info = told if "run_id" in told else next(iter(told.values()))
    identity = _identity(str(info.get("run_id", "")), str(info.get("master_replid", "")))
    return ServerInfo(identity, was_replica=bool(str(info.get("master_replid2", "")).strip("0")))


def identity_in(info: str) -> str:
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    return _identity(fields.get("run_id", ""), fields.get("master_replid", ""))


def _identity(run_id: str, replication_id: str) -> str:
    """A promoted replica keeps its run id and gets a new replication id; a restart changes both."""
    return f"{run_id}/{replication_id}"
