"""The server runs that a process may use.

A server that restarted or was promoted may have lost writes. So every new connection checks the server's identity, and
fails until the store has been compared with history (`persistence/recovery/store_guard.py`). The epoch guard in the
scripts cannot detect this: a store that lost its last seconds still has its epoch.
"""

import asyncio
from typing import Any, NamedTuple

from redis.exceptions import ConnectionError as StoreConnectionError
from redis.utils import str_if_bytes


class TrustedServers:
    """`unverified` is set when a connection meets an unknown server; `trust` allows that server."""

    def __init__(self) -> None:
        self.unverified = asyncio.Event()
        self._trusted: frozenset[str] = frozenset()

    def trust(self, *identities: str) -> None:
        """Replace the trusted identities."""
        self._trusted = frozenset(identities)
        self.unverified.clear()

    async def check(self, connection: Any) -> None:
        """Called by the driver for every new connection, before any command; raises for an untrusted server."""
        await connection.on_connect()
        await connection.send_command("INFO", "server", "replication")
        if identity_in(str_if_bytes(await connection.read_response())) not in self._trusted:
            self.unverified.set()
            raise StoreConnectionError("the store restarted and is being compared with history")


class ServerInfo(NamedTuple):
    """Identity of a server run, and whether it was promoted."""

    identity: str
    was_replica: bool
    """Whether it replaced another primary, which may still run without noticing."""


async def server_info_of(client: Any, **target: Any) -> ServerInfo:
    """Returns the info of the server, or of the one cluster node that `target` names."""
    (info,) = await infos_of(client, "server", "replication", **target)
    identity = _identity(str(info.get("run_id", "")), str(info.get("master_replid", "")))
    return ServerInfo(identity, was_replica=bool(str(info.get("master_replid2", "")).strip("0")))


async def infos_of(client: Any, *sections: str, **target: Any) -> list[dict[str, Any]]:
    """Returns INFO of every server that replies: of all nodes of a cluster, unless `target` names one."""
    reply = await client.info(*sections, **target)
    return list(reply.values()) if all(isinstance(each, dict) for each in reply.values()) else [reply]


def identity_in(info: str) -> str:
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    return _identity(fields.get("run_id", ""), fields.get("master_replid", ""))


def _identity(run_id: str, replication_id: str) -> str:
    """A promoted replica keeps its run id and gets a new replication id; a restart changes both."""
    return f"{run_id}/{replication_id}"
