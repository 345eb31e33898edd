"""Checks the store behind REDIS_URL: reachable, configured safely, and compared with history."""

import time
from collections.abc import AsyncIterator
from typing import Any

from tideq.cli.checks.finding import Finding, fail, ok, warn
from tideq.embedded.aof_sync import CONNECTION_NAME as AOF_SYNC_NAME
from tideq.queue_core.errors import QueueError
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.connect import StoreUrlError, connect
from tideq.queue_core.store.driver_errors import store_errors
from tideq.queue_core.store.restore import StoreRestore

OLDEST_VERSION = (7, 0)
MAX_SKEW_SECONDS = 5.0
NEARLY_FULL = 0.8
EVERYSEC = (
    "a power cut loses up to a second, a kill of the server while its disk is slow up to two; "
    'submit tasks that must not be lost with "durability": "disk"'
)
NO_SYNC = 'set appendfsync everysec; without it "durability": "disk" is never reached'
CLOSED = "the service repairs it once it reaches the database; or run `tideq rebuild`"


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
        yield await _check_clock_offset(client, queue)
        yield await _check_scripts(client)
        yield await _check_epoch(client, queue)
    except QueueError as error:
        yield fail("store", str(error), "check REDIS_URL, and that the server runs")
    finally:
        await client.aclose()


def _nodes(info: dict[str, Any]) -> list[dict[str, Any]]:
    """The INFO of each node; a cluster returns one for each."""
    return [info] if "redis_version" in info else list(info.values())


def _check_version(info: dict[str, Any]) -> Finding:
    name, version = info.get("server_name", "redis"), info.get("valkey_version") or info["redis_version"]
    if tuple(map(int, info["redis_version"].split(".")[:2])) < OLDEST_VERSION:
        return fail("store", f"{name} {version} is too old", "run Valkey, or Redis 7 or later")
    return ok("store", f"{name} {version} answers")


def check_eviction(info: dict[str, Any]) -> Finding:
    """A store that evicts keys loses tasks. Pure."""
    policy, limit, used = info.get("maxmemory_policy", ""), info.get("maxmemory", 0), info.get("used_memory", 0)
    if policy != "noeviction" and limit:
        return fail("store memory", f"maxmemory-policy is {policy}: tasks will be lost", "set it to noeviction")
    if policy != "noeviction":
        return warn("store memory", f"maxmemory-policy is {policy}", "set it to noeviction before you limit its memory")
    if limit and used / limit > NEARLY_FULL:
        found = f"{used / limit:.0%} of its memory is in use"
        return warn("store memory", found, "raise maxmemory: above TIDEQ_MAX_MEMORY_RATIO submissions are refused")
    return ok("store memory", f"{policy}, {f'{used / limit:.0%} in use' if limit else 'no limit'}")


def check_persistence(info: dict[str, Any]) -> Finding:
    if info.get("aof_enabled"):
        return ok("store log", "appendonly yes")
    return warn("store log", "appendonly no: a restart loses the queue", "set appendonly yes, or rely on history alone")


async def _check_sync(client: Any) -> Finding | None:
    """None where the setting cannot be read: managed servers often forbid CONFIG, and a cluster answers by node."""
    try:
        with store_errors():
            policy = (await client.config_get("appendfsync"))["appendfsync"]
            names = {each["name"] for each in await client.client_list()}
    except (QueueError, LookupError, TypeError):
        return None
    return check_sync(policy, is_synced_by_tideq=AOF_SYNC_NAME in names)


def check_sync(policy: str, *, is_synced_by_tideq: bool) -> Finding:
    if is_synced_by_tideq:
        return ok("store sync", "tideq syncs the log once a second: a kill loses nothing, a power cut about a second")
    if policy == "always":
        return ok("store sync", "appendfsync always: neither a kill nor a power cut loses anything")
    if policy == "everysec":
        return ok("store sync", f"appendfsync everysec: {EVERYSEC}")
    return warn("store sync", f"appendfsync {policy}: a power cut loses writes the kernel had not synced", NO_SYNC)


def _check_clock(clock: tuple[int, int]) -> Finding:
    skew = time.time() - (clock[0] + clock[1] / 1e6)
    if abs(skew) > MAX_SKEW_SECONDS:
        return warn("store clock", f"{abs(skew):.0f} s off this machine's clock", "let NTP set both clocks")
    return ok("store clock", "agrees with this machine's clock")


async def _check_clock_offset(client: Any, queue: QueueSettings) -> Finding:
    """Reads the first partition only."""
    with store_errors():
        note = await client.hget(Keys(queue.queue_name).key("meta"), "clock")
    return check_clock_offset((note or b"").decode())


def check_clock_offset(note: str) -> Finding:
    """`note` is written by `include/clock.lua`: the last reading, the offset of queue time, an unconfirmed jump."""
    if not note:
        return ok("queue time", "equals the store's clock")
    ahead = float(note.split()[1]) / 1_000
    found = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the store's clock, which has stepped"
    return warn("queue time", found, "let NTP slew that clock; until then delays and leases take a tenth longer")


async def _check_scripts(client: Any) -> Finding:
    try:
        with store_errors():
            await client.eval("return cjson.encode({1})", 0)
    except QueueError as error:
        return fail("store scripts", str(error), "permit EVAL and EVALSHA: every transition is a script")
    return ok("store scripts", "Lua scripts run")


async def _check_epoch(client: Any, queue: QueueSettings) -> Finding:
    """Reads the first partition only; the checks of history compare all partitions."""
    status = await StoreRestore(client, queue).status()
    if not status.epoch:
        return ok("epoch", f"the store has no queue {queue.queue_name!r} yet")
    if not status.is_usable:
        return fail("epoch", "the store is closed: a rebuild began and did not end", CLOSED)
    if status.trusted_identity and status.identity != status.trusted_identity:
        return fail("epoch", "the store restarted and was not compared with history since", CLOSED)
    return ok("epoch", f"{status.epoch}, compared with history")
