"""What goes wrong: one function a fault, and a plan of them made of a seed.

A new fault is a function in `FAULTS` and a weight in a profile.
"""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import redis.asyncio as redis
from redis.exceptions import RedisError

from tests.api.proxy import Proxy
from tests.chaos.notes import wall_ms
from tests.chaos.site import QUEUE, SERVICE_ROLE, Site, new_valkey
from tideq.embedded.embedded_errors import NotStarted

MAX_DOWN_SECONDS = 0.5
FLOOR_BYTES = 1
CLOCK_BACK_MS, CLOCK_AHEAD_MS = -2_000, 15_000
SLOW_SYNC_MS = 1_500
MAX_UNHEARD_SECONDS = 1.0
HOUR_MS = 3_600_000
PREFIX = f"tideq:{{{QUEUE}:0}}:"
RUBBISH = "\\xff\\x00 no record"
PUT_BACK_SECONDS = 120
WAITING_SECONDS = 5.0
WAITING = """
local found = {}
for _, id in ipairs(redis.call('ZRANGE', ARGV[1] .. 'queue', 0, 200)) do
  local record = redis.call('HGET', ARGV[1] .. 'records', id) or ''
  if string.find(string.sub(record, 1, 8), 'queued', 1, true) then found[#found + 1] = id end
end
return found
"""
SPOIL = """
local record, good = redis.call('HGET', ARGV[1] .. 'records', ARGV[4]), redis.call('HGET', ARGV[1] .. ARGV[2], ARGV[4])
if not good or not string.find(string.sub(record, 1, 8), 'queued', 1, true) then return false end
redis.call('HSET', ARGV[1] .. ARGV[2], ARGV[4], ARGV[3])
return good
"""
MEND = """
if redis.call('HGET', ARGV[1] .. ARGV[2], ARGV[4]) ~= ARGV[3] then return end
redis.call('HSET', ARGV[1] .. ARGV[2], ARGV[4], ARGV[5])
"""
MAX_GLITCH_SECONDS = 1.0
CLOCK_ERRORS_MS = tuple(sign * HOUR_MS * hours for sign in (1, -1) for hours in (1, 24 * 30, 24 * 365))


class Fault(NamedTuple):
    at_seconds: float
    name: str
    target: str
    seconds: float


Act = Callable[[Site, str, float], Awaitable[None]]


async def kill(site: Site, target: str, seconds: float) -> None:
    process = site.processes[target]
    process.kill()
    await asyncio.sleep(min(seconds, MAX_DOWN_SECONDS))
    process.start()


async def freeze(site: Site, target: str, seconds: float) -> None:
    process = site.processes[target]
    if process.is_up:
        process.freeze()
        await asyncio.sleep(seconds)
        process.thaw()


async def reset(site: Site, target: str, seconds: float) -> None:
    site.proxies[target].reset_all()


async def lose_replies(site: Site, target: str, seconds: float) -> None:
    """The deed is done, and nobody hears of it."""
    proxy, chance = site.proxies[target], random.Random(f"{target}:{seconds}")
    proxy.resets_before = lambda _: chance.random() < 0.2
    await asyncio.sleep(seconds)
    proxy.resets_before = lambda _: False


async def delay(site: Site, target: str, seconds: float) -> None:
    site.proxies[target].delay_seconds = seconds / 8
    await asyncio.sleep(seconds)
    site.proxies[target].delay_seconds = 0.0


async def half_open(site: Site, target: str, seconds: float) -> None:
    """Requests get through, answers do not; then the connections break."""
    proxy: Proxy = site.proxies[target]
    proxy.hold_answers()
    await asyncio.sleep(seconds)
    proxy.reset_all()
    proxy.release_answers()


async def postgres_down(site: Site, target: str, seconds: float) -> None:
    async with site.store_lock:
        await asyncio.to_thread(site.postgres.kill)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(site.postgres.start)


async def history_read_only(site: Site, target: str, seconds: float) -> None:
    """As in the moments of a fail-over: PostgreSQL answers, and takes no write."""
    async with site.store_lock:
        with site.history_settings() as alter:
            alter("ALTER SYSTEM SET default_transaction_read_only = on")
            await asyncio.sleep(seconds)
            alter("ALTER SYSTEM RESET default_transaction_read_only")


async def history_timeouts(site: Site, target: str, seconds: float) -> None:
    """Somebody gives every session that does not say otherwise a hundredth of a second for a statement."""
    async with site.store_lock:
        with site.history_settings() as alter:
            for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
                alter(f"ALTER SYSTEM SET {name} = 10")
            await asyncio.sleep(seconds)
            alter("ALTER SYSTEM RESET ALL")


async def history_forbidden(site: Site, target: str, seconds: float) -> None:
    """The service's role may not touch its own tables for a while."""
    async with site.store_lock:
        with site.history_settings() as alter:
            alter(f"REVOKE ALL ON ALL TABLES IN SCHEMA tideq_{QUEUE} FROM {SERVICE_ROLE}")
            await asyncio.sleep(seconds)
            alter(f"GRANT ALL ON ALL TABLES IN SCHEMA tideq_{QUEUE} TO {SERVICE_ROLE}")


async def store_forbidden(site: Site, target: str, seconds: float) -> None:
    """The store's user may not touch the queue's keys for a while; lookouts are blind as well."""
    async with site.store_lock, store_client(site) as client:
        await client.execute_command("ACL", "SETUSER", "default", "resetkeys", "~elsewhere")
        await asyncio.sleep(seconds)
        await client.execute_command("ACL", "SETUSER", "default", "allkeys")


async def process_clock(site: Site, target: str, seconds: float) -> None:
    """One process's clock is wrong by an hour, a month or a year, to either side."""
    site.shims[target].jump(random.Random(f"{target}:{seconds}").choice(CLOCK_ERRORS_MS))
    await asyncio.sleep(seconds)
    site.shims[target].jump(-site.shims[target].ahead_ms)


async def valkey_restart(site: Site, target: str, seconds: float) -> None:
    async with site.store_lock:
        await asyncio.to_thread(site.valkey.kill)
        await asyncio.sleep(min(seconds, MAX_DOWN_SECONDS))
        await asyncio.to_thread(site.valkey.start)


async def killed_while_slow(site: Site, target: str, seconds: float) -> None:
    """The disk takes long to sync, and in the middle of that the store is killed: nothing acknowledged may be lost."""
    async with site.store_lock:
        site.shim.slow_disk(SLOW_SYNC_MS)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(site.valkey.kill)
        site.shim.slow_disk(0)
        await asyncio.to_thread(site.valkey.start)


async def valkey_wiped(site: Site, target: str, seconds: float) -> None:
    async with site.store_lock:
        epoch = await _epoch(site)
        await asyncio.to_thread(site.valkey.kill)
        site.notebook.note("wiped", epoch=epoch)
        await asyncio.to_thread(site.valkey.empty)
        await asyncio.to_thread(site.valkey.start)
        await _until_rebuilt(site)


async def failed_over(site: Site, target: str, seconds: float) -> None:
    """A replica takes over that has not heard of the primary's last moments, and then the primary is killed."""
    async with site.store_lock:
        number = len(list(site.folder.glob("valkey*")))
        replica = new_valkey(site.folder / f"valkey-{number}", site.shim)
        await asyncio.to_thread(replica.start)
        async with client_at(replica.redis_url) as client:
            await client.replicaof("127.0.0.1", urlsplit(site.valkey.redis_url).port)
            while (await client.info("replication")).get("master_link_status") != "up":
                await asyncio.sleep(0.05)
            await client.replicaof("NO", "ONE")
        await asyncio.sleep(min(seconds, MAX_UNHEARD_SECONDS))
        epoch = await _epoch(site)
        await asyncio.to_thread(site.valkey.kill)
        site.notebook.note("failed_over", epoch=epoch)
        site.valkey = replica
        for name in site.proxies:
            if name.endswith(">valkey"):
                site.proxies[name].lead_to(replica.redis_url)
        await _until_rebuilt(site)


async def valkey_frozen(site: Site, target: str, seconds: float) -> None:
    async with site.store_lock:
        for pid in site.valkey.pids:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        for pid in site.valkey.pids:
            os.kill(pid, signal.SIGCONT)


async def scripts_forgotten(site: Site, target: str, seconds: float) -> None:
    async with site.store_lock, store_client(site) as client:
        await client.execute_command("SCRIPT", "FLUSH")


async def memory_full(site: Site, target: str, seconds: float) -> None:
    async with site.store_lock, store_client(site) as client:
        await client.config_set("maxmemory", FLOOR_BYTES)
        await asyncio.sleep(seconds)
        await client.config_set("maxmemory", 0)


async def disk_full(site: Site, target: str, seconds: float) -> None:
    """Over only when the store has written down all it was told meanwhile: until then a kill would lose it."""
    async with site.store_lock, store_client(site) as client:
        site.shim.fill_disk(True)
        await asyncio.sleep(seconds)
        site.shim.fill_disk(False)
        while (await client.info("persistence"))["aof_last_write_status"] != "ok":
            await asyncio.sleep(0.1)


async def unreadable(site: Site, target: str, seconds: float) -> None:
    """A waiting task's record, or what was asked of it, is rubbish for a while: it waits aside, alone."""
    kept_in = random.Random(f"unreadable:{seconds}").choice(("records", "definitions"))
    spoiled, loop = None, asyncio.get_running_loop()
    until = loop.time() + WAITING_SECONDS
    while spoiled is None and loop.time() < until:
        async with site.store_lock, store_client(site) as client:
            spoiled = await _spoil(site, client, kept_in)
        await asyncio.sleep(0.05)
    if spoiled is None:
        return
    task_id, good = spoiled
    site.notebook.note("spoiled", task_id=task_id, kept_in=kept_in)
    await asyncio.sleep(seconds)
    async with site.store_lock, store_client(site) as client:
        await client.eval(MEND, 0, PREFIX, kept_in, RUBBISH, task_id, good)
    async with asyncio.timeout(PUT_BACK_SECONDS):
        while await _is_aside(site, task_id):
            await asyncio.sleep(0.5)


async def _spoil(site: Site, client: Any, kept_in: str) -> tuple[str, bytes] | None:
    """One that history has: before that its events would be parked, and stay so until somebody has them tried again."""
    waiting = [task_id.decode() for task_id in await client.eval(WAITING, 0, PREFIX)]
    for task_id in await asyncio.to_thread(site.known_to_history, waiting):
        good = await client.eval(SPOIL, 0, PREFIX, kept_in, RUBBISH, task_id)
        if good is not None:
            return task_id, good
    return None


async def _is_aside(site: Site, task_id: str) -> bool:
    with contextlib.suppress(RedisError, OSError, NotStarted):
        async with store_client(site) as client:
            return await client.zscore(f"{PREFIX}unreadable", task_id) is not None
    return True


async def clock_set_back(site: Site, target: str, seconds: float) -> None:
    """By an hour, and put right after a moment: time goes on all the while."""
    await _jump(site, -HOUR_MS)
    await asyncio.sleep(seconds)
    await _jump(site, HOUR_MS)


async def clock_glitch(site: Site, target: str, seconds: float) -> None:
    """A week ahead, for less than it takes to be believed: nothing falls due by it."""
    async with site.store_lock:
        began = wall_ms()
        site.shim.jump(24 * 7 * HOUR_MS)
        await asyncio.sleep(min(seconds, MAX_GLITCH_SECONDS))
        site.shim.jump(-24 * 7 * HOUR_MS)
        site.notebook.note("clock", t0=began, ahead_ms=site.shim.ahead_ms)


async def clock_ahead(site: Site, target: str, seconds: float) -> None:
    await _jump(site, CLOCK_AHEAD_MS)


async def clock_back(site: Site, target: str, seconds: float) -> None:
    await _jump(site, CLOCK_BACK_MS)


async def _jump(site: Site, milliseconds: int) -> None:
    async with site.store_lock:
        began = wall_ms()
        site.shim.jump(milliseconds)
        site.notebook.note("clock", t0=began, ahead_ms=site.shim.ahead_ms)


async def _until_rebuilt(site: Site) -> None:
    """The next trouble waits: a second wipe in the middle of a rebuild is `kill` of whoever rebuilds."""
    with contextlib.suppress(TimeoutError):
        await site.until_ready()


async def _epoch(site: Site) -> int:
    """0 while the store is being filled."""
    async with store_client(site) as client:
        epoch = await client.hget(f"{PREFIX}meta", "epoch") or b""
    return int(epoch) if epoch.isdigit() else 0


def store_client(site: Site) -> contextlib.AbstractAsyncContextManager[Any]:
    """Past the proxies."""
    return client_at(site.valkey.redis_url)


@contextlib.asynccontextmanager
async def client_at(url: str) -> AsyncGenerator[Any]:
    driver: Any = redis.Redis
    async with contextlib.aclosing(driver.from_url(url)) as client:
        yield client


FAULTS: dict[str, Act] = {
    act.__name__: act
    for act in (
        *(kill, freeze, reset, lose_replies, delay, half_open),
        *(postgres_down, valkey_restart, valkey_wiped, failed_over, valkey_frozen, scripts_forgotten),
        *(memory_full, disk_full, killed_while_slow, clock_ahead, clock_back, clock_set_back, clock_glitch),
        *(history_read_only, history_timeouts, history_forbidden, store_forbidden, process_clock, unreadable),
    )
}
ON_PROCESSES, ON_PROXIES = ("kill", "freeze"), ("reset", "lose_replies", "delay", "half_open")
NEED_SHIM = (
    "disk_full",
    "killed_while_slow",
    "clock_ahead",
    "clock_back",
    "clock_set_back",
    "clock_glitch",
    "process_clock",
)
KILLING = ("kill", "postgres_down", "valkey_restart", "valkey_wiped", "failed_over", "killed_while_slow")

Profile = dict[str, float]
MIXED: Profile = {
    "kill": 10,
    "freeze": 3,
    "reset": 3,
    "lose_replies": 3,
    "delay": 2,
    "half_open": 2,
    "postgres_down": 1.5,
    "valkey_restart": 2,
    "valkey_wiped": 1,
    "failed_over": 1,
    "valkey_frozen": 1,
    "scripts_forgotten": 1,
    "memory_full": 1,
    "disk_full": 1,
    "killed_while_slow": 1,
    "clock_ahead": 0.5,
    "clock_back": 0.5,
    "clock_set_back": 0.5,
    "clock_glitch": 0.5,
    "history_read_only": 1,
    "history_timeouts": 1,
    "history_forbidden": 1,
    "store_forbidden": 1,
    "process_clock": 1.5,
    "unreadable": 1,
}
"""Chance by weight; in a plan every fault of its profile comes before any comes a second time.

`kill:worker` is a kill of something with "worker" in its name.
"""


def make_plan(seed: int, seconds: float, every_seconds: float, profile: Profile, site: Site) -> list[Fault]:
    chance = random.Random(f"plan:{seed}")
    possible = {name: weight for name, weight in profile.items() if name not in NEED_SHIM or not site.shim.missing}
    first = chance.sample(list(possible), len(possible))
    plan: list[Fault] = []
    at = every_seconds
    while at < seconds:
        key = first.pop() if first else chance.choices(list(possible), list(possible.values()))[0]
        name, _, part = key.partition(":")
        plan.append(Fault(round(at, 3), name, _target(chance, name, part, site), round(chance.uniform(0.3, 3.0), 3)))
        at += chance.uniform(0.5, 1.5) * every_seconds
    return plan


def _target(chance: random.Random, name: str, part: str, site: Site) -> str:
    places = {**dict.fromkeys(ON_PROCESSES, site.processes), **dict.fromkeys(ON_PROXIES, site.proxies)}
    possible = site.shims if name == process_clock.__name__ else places.get(name, {"": None})
    return chance.choice(sorted(target for target in possible if part in target))


async def inflict(site: Site, plan: list[Fault]) -> None:
    """Each at its time, whether or not the one before is over; returns when all are."""
    began = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        for fault in plan:
            await asyncio.sleep(max(began + fault.at_seconds - asyncio.get_running_loop().time(), 0))
            group.create_task(_inflict(site, fault))


async def _inflict(site: Site, fault: Fault) -> None:
    began = wall_ms()
    site.notebook.note("fault_begins", name=fault.name, target=fault.target, seconds=fault.seconds)
    await FAULTS[fault.name](site, fault.target, fault.seconds)
    site.notebook.note("fault", name=fault.name, target=fault.target, t0=began)
