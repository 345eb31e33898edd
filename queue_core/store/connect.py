"""From a URL to a connected client: plain, TLS, unix socket, Sentinel and Cluster.

    redis://host:6379/0   rediss://host   unix:///run/valkey.sock
    redis+sentinel://host1:26379,host2:26379/service-name/0    (rediss+sentinel:// for TLS)
    redis+cluster://host1:7000,host2:7000                      (rediss+cluster:// for TLS)

No command is ever repeated, because a script whose reply was only late would run twice. Callers repeat the scripts that
may be repeated.
"""

import asyncio
import random
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import redis.asyncio as redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig

from tideq.queue_core.store.server_identity import ServerInfo, TrustedServers, server_info_of
from tideq.queue_core.store.store_client import SentinelClient, StoreClient, store_connection

COMMAND_TIMEOUT_SECONDS = 5.0
MAX_CONNECTIONS = 1_000
"""To one server. Script calls of a partition use 16 at most; beyond the maximum, redis-py refuses a command."""
SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
pools: Any = redis.ConnectionPool


class StoreUrlError(ValueError):
    """The store's URL is invalid; the message gives the reason."""


def connect(url: str, identity: TrustedServers | None = None) -> Any:
    """Returns a client for commands, with a short timeout and no retries; with `identity`, for trusted servers only."""
    return _client(url, identity, COMMAND_TIMEOUT_SECONDS)


def connect_reader(url: str, identity: TrustedServers | None = None) -> Any:
    """Returns a client for reads that block for about a second; in a cluster, they go to the stream's node."""
    return connect(url, identity) if "cluster" in urlsplit(url).scheme else connect_listener(url, identity)


def connect_listener(url: str, identity: TrustedServers | None = None) -> Any:
    """Returns a client for subscriptions: reads without a timeout, dead peers detected by keep-alives.

    With `identity`, for trusted servers only. In a cluster every node receives the messages of all nodes, so a random
    node serves, and no node is checked.
    """
    parts = urlsplit(url)
    if "cluster" not in parts.scheme:
        return _client(url, identity, None)
    host, port = random.choice(_addresses(parts, 6_379))
    login, at, _ = parts.netloc.rpartition("@")
    node = parts._replace(scheme=parts.scheme.removesuffix("+cluster"), netloc=f"{login}{at}{host}:{port}", path="")
    return _client(node.geturl(), None, None)


def _client(url: str, identity: TrustedServers | None, timeout_seconds: float | None) -> Any:
    parts = urlsplit(url)
    options: dict[str, Any] = {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": COMMAND_TIMEOUT_SECONDS,
        # Without errors to retry, a subscription ends with its connection instead of missing messages unnoticed.
        "retry": Retry(NoBackoff(), 0, supported_errors=()),
        # With them, redis-py does not notice that the server closed an idle connection.
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        "max_connections": MAX_CONNECTIONS,
    }
    if identity is not None:
        options["redis_connect_func"] = identity.check
    if parts.scheme in ("redis", "rediss", "unix"):
        try:
            return StoreClient.from_pools(lambda: _with_store_connections(pools.from_url(url, **options)))
        except ValueError as error:
            raise StoreUrlError(f"REDIS_URL: {error}") from error
    if parts.scheme not in SCHEMES:
        raise StoreUrlError(f"REDIS_URL: scheme {parts.scheme!r} is not one of {', '.join(SCHEMES)}")
    options |= _credentials(parts) | dict(parse_qsl(parts.query))
    if parts.scheme.startswith("rediss"):
        options["ssl"] = True
    return _sentinel(parts, options) if "sentinel" in parts.scheme else _cluster(parts, options)


def _with_store_connections(pool: Any) -> Any:
    pool.connection_class = store_connection(pool.connection_class)
    return pool


def _credentials(parts: SplitResult) -> dict[str, str]:
    userinfo, at, _ = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    return (
        {"username": unquote(user), "password": unquote(password)}
        if at and user
        else ({"password": unquote(password)} if at else {})
    )


def _addresses(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    addresses: list[tuple[str, int]] = []
    for address in parts.netloc.rpartition("@")[2].split(","):
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "")
        if not host or (port and not port.isdigit()):
            raise StoreUrlError(f"REDIS_URL: {address!r} is not host:port")
        addresses.append((host, int(port) if port else default_port))
    return addresses


def _sentinel(parts: SplitResult, options: dict[str, Any]) -> Any:
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise StoreUrlError("REDIS_URL: a Sentinel URL ends with the service's name, like /mymaster/0")
    sentinel_options = {"socket_timeout": COMMAND_TIMEOUT_SECONDS}
    sentinel = Sentinel(_addresses(parts, 26_379), sentinel_kwargs=sentinel_options)
    return SentinelClient.from_pools(
        lambda: _with_store_connections(SentinelConnectionPool(service, sentinel, db=int(database or 0), **options))
    )


def _cluster(parts: SplitResult, options: dict[str, Any]) -> Any:
    """Returns a client that follows moved slots one by one: the driver's refresh of all nodes after some moves would
    close connections that other calls wait on."""
    nodes = [ClusterNode(host, port) for host, port in _addresses(parts, 6_379)]
    check = {"redis_connect_func": options.pop("redis_connect_func")} if "redis_connect_func" in options else {}
    client: Any = RedisCluster(startup_nodes=nodes, reinitialize_steps=0, **options)
    # RedisCluster takes neither of the two: nodes found later get them from the client's options.
    client.connection_kwargs["connection_class"] = store_connection(client.connection_kwargs["connection_class"])
    client.connection_kwargs.update(check)
    for node in client.nodes_manager.startup_nodes.values():
        _with_store_connections(node).connection_kwargs.update(check)
    return client


def is_cluster(client: Any) -> bool:
    return isinstance(client, RedisCluster)


async def target_of(client: Any, key: str) -> dict[str, Any]:
    """Returns the option that sends a command to the cluster node that has this key; none without a cluster."""
    if not is_cluster(client):
        return {}
    await client.initialize()
    return {"target_nodes": client.get_node_from_key(key)}


def node_client(node: Any) -> Any:
    """Returns a client for one node of a cluster; the caller closes it."""
    options = {name: value for name, value in node.connection_kwargs.items() if name != "himport_registry"}
    pool: Any = redis.ConnectionPool(connection_class=node.connection_class, **options)
    return redis.Redis.from_pool(pool)


async def identities_of(client: Any) -> list[str]:
    """Returns the identity of the server, or of every cluster node that answers."""
    if not is_cluster(client):
        return [(await server_info_of(client)).identity]
    await client.initialize()
    calls = (server_info_of(client, target_nodes=node) for node in client.get_nodes())
    infos = await asyncio.gather(*calls, return_exceptions=True)
    return [each.identity for each in infos if isinstance(each, ServerInfo)]
