"""The store behind REDIS_URL: is it there, is it fit for the purpose, is it trusted."""

import time
from collections.abc import AsyncIterator
from typing import Any

from tideq.cli.checks.finding import Finding, fail, ok, warn
from tideq.embedded.aof_sync import CONNECTION_NAME as LOG_KEEPER
from tideq.queue_core.errors import QueueError
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.connect import StoreUrlError, connect, store_errors
from tideq.queue_core.store.restore import StoreRestore

OLDEST_VERSION = (7, 0)
MAX_SKEW_SECONDS = 5.0
NEARLY_FULL = 0.8
EVERYSEC = (
    "a power cut costs up to a second, a kill of the server while its disk is slow up to two; "
    'tasks that cannot afford it ask for "durability": "disk"'
)
NO_SYNC = 'set appendfsync everysec; "durability": "disk" is never reached without'
CLOSED = "the service mends it by itself once it reaches the database; `tideq rebuild` does so by hand"


async def check_store(redis_url: str, queue: QueueSettings) -> AsyncIterator[Finding]:
    try:
        client = connect(redis_url)
    except (StoreUrlError, ValueError) as error:
        yield fail("store", str(error), "correct REDIS_URL: redis://127.0.0.1:6379")
        return
    try:
        with store_errors():
            info, clock = await client.info(), await client.time()
        for node in _nodes(info):
            yield _check_version(node)
            yield check_eviction(node)
            yield check_persistence(node)
        if finding := await _check_sync(client):
            yield finding
        yield _check_clock(clock)
        yield await _check_steps(client, queue)
        yield await _check_scripts(client)
        yield await _check_epoch(client, queue)
    except QueueError as error:
        yield fail("store", str(error), "is REDIS_URL right, and does the server run?")
    finally:
        await client.aclose()


def _nodes(info: dict[str, Any]) -> list[dict[str, Any]]:
    """A cluster answers once for each node."""
    return [info] if "redis_version" in info else list(info.values())


def _check_version(info: dict[str, Any]) -> Finding:
    name, version = info.get("server_name", "redis"), info.get("valkey_version") or info["redis_version"]
    if tuple(map(int, info["redis_version"].split(".")[:2])) < OLDEST_VERSION:
        return fail("store", f"{name} {version} is too old", "run Valkey, or Redis 7 or later")
    return ok("store", f"{name} {version} answers")


def check_eviction(info: dict[str, Any]) -> Finding:
    """A store that evicts keys loses tasks. Pure, as is what follows."""
    policy, limit, used = info.get("maxmemory_policy", ""), info.get("maxmemory", 0), info.get("used_memory", 0)
    if policy != "noeviction" and limit:
        return fail("store memory", f"maxmemory-policy is {policy}: tasks get lost", "set it to noeviction")
    if policy != "noeviction":
        return warn("store memory", f"maxmemory-policy is {policy}", "set it to noeviction before you limit its memory")
    if limit and used / limit > NEARLY_FULL:
        found = f"{used / limit:.0%} of its memory is in use"
        return warn("store memory", found, "give it more: beyond TIDEQ_MAX_MEMORY_RATIO submissions are refused")
    return ok("store memory", f"{policy}, {f'{used / limit:.0%} in use' if limit else 'no limit'}")


def check_persistence(info: dict[str, Any]) -> Finding:
    if info.get("aof_enabled"):
        return ok("store log", "appendonly yes")
    return warn("store log", "appendonly no: a restart loses the queue", "set appendonly yes, or rely on history alone")


async def _check_sync(client: Any) -> Finding | None:
    """Nothing where the server does not say: managed ones often forbid it, and a cluster answers for each node."""
    try:
        with store_errors():
            policy = (await client.config_get("appendfsync"))["appendfsync"]
            names = {each["name"] for each in await client.client_list()}
    except (QueueError, LookupError, TypeError):
        return None
    return check_sync(policy, is_synced_by_tideq=LOG_KEEPER in names)


def check_sync(policy: str, *, is_synced_by_tideq: bool) -> Finding:
    if is_synced_by_tideq:
        return ok("store sync", "by tideq, once a second: a kill loses nothing, a power cut about a second")
    if policy == "always":
        return ok("store sync", "appendfsync always: neither a kill nor a power cut loses anything")
    if policy == "everysec":
        return ok("store sync", f"appendfsync everysec: {EVERYSEC}")
    return warn("store sync", f"appendfsync {policy}: a power cut loses what the kernel still held", NO_SYNC)


def _check_clock(clock: tuple[int, int]) -> Finding:
    skew = time.time() - (clock[0] + clock[1] / 1e6)
    if abs(skew) > MAX_SKEW_SECONDS:
        return warn("store clock", f"{abs(skew):.0f} s off this one", "let NTP set both")
    return ok("store clock", "agrees with this one")


async def _check_steps(client: Any, queue: QueueSettings) -> Finding:
    """Of the first partition."""
    with store_errors():
        note = await client.hget(Keys(queue.queue_name).key("meta"), "clock")
    return check_clock_offset((note or b"").decode())


def check_clock_offset(note: str) -> Finding:
    """From what `include/clock.lua` keeps: the last reading, how far time was ahead of it, a jump in doubt."""
    if not note:
        return ok("queue time", "is what the store's clock says")
    ahead = float(note.split()[1]) / 1_000
    found = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the store's clock, which has stepped"
    return warn("queue time", found, "let NTP slew that clock; until both agree, delays and leases take a tenth longer")


async def _check_scripts(client: Any) -> Finding:
    try:
        with store_errors():
            await client.eval("return cjson.encode({1})", 0)
    except QueueError as error:
        return fail("store scripts", str(error), "allow EVAL and EVALSHA: every transition is a script")
    return ok("store scripts", "Lua runs")


async def _check_epoch(client: Any, queue: QueueSettings) -> Finding:
    """Of the first partition: the others are compared with history by the checks of that."""
    facts = await StoreRestore(client, queue).status()
    if not facts.epoch:
        return ok("epoch", f"queue {queue.queue_name!r} is new here")
    if not facts.is_usable:
        return fail("epoch", "the store is closed: filling it began and did not end", CLOSED)
    if facts.trusted_identity and facts.identity != facts.trusted_identity:
        return fail("epoch", "the store has restarted and nobody has compared it with history yet", CLOSED)
    return ok("epoch", f"{facts.epoch}, found sound")
