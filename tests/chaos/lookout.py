"""Looks at the store itself now and then, past every proxy, for the checker. Nothing of ours is used."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import redis.asyncio as redis
from redis.exceptions import RedisError

from tests.chaos.notes import Notebook

LOOK = """
local function all(key) return redis.call('HGETALL', ARGV[1] .. key) end
local meta = redis.call('HMGET', ARGV[1] .. 'meta', 'epoch', 'sealed')
return {meta[1] or '', redis.call('ZRANGE', ARGV[1] .. 'queue', 0, -1, 'WITHSCORES'), all('records'),
  redis.call('HKEYS', ARGV[1] .. 'definitions'), all('counts'), redis.call('ZRANGE', ARGV[1] .. 'dead', 0, -1),
  redis.call('ZRANGE', ARGV[1] .. 'unreadable', 0, -1)}
"""
STATE, VERSION, ATTEMPT, RANK, RETRIES, LOSSES, DELIVERIES = 0, 1, 6, 14, 16, 17, 18
"""Places in a record, a line of texts with a zero byte after each."""
LIVE = ("queued", "assigned", "executing")
SHOWN = 3
Standing = tuple[str, int, int, int, int, int]


def texts_of(record: str) -> list[str]:
    """Without the format's number. History keeps other separators: no text of its can hold zero bytes."""
    return record.replace("\x1f", "\0").split("\0")[1:]


def standing_of(record: str) -> Standing:
    """State, version, attempt, retries, losses, deliveries."""
    texts = texts_of(record)
    numbers = (int(texts[place]) for place in (VERSION, ATTEMPT, RETRIES, LOSSES, DELIVERIES))
    return (texts[STATE], *numbers)  # pyright: ignore[reportReturnType]


class Look:
    """One instant of the store."""

    def __init__(self, answer: Any) -> None:
        epoch, queue, records, defined, counts, dead, aside = answer
        self.epoch: str = epoch.decode()
        self.queue = {name.decode(): int(float(score)) for name, score in _pairs(queue)}
        whole = {name.decode(): record.decode(errors="replace") for name, record in _pairs(records)}
        self.records = {name: standing_of(record) for name, record in whole.items() if len(texts_of(record)) > RANK}
        self.spoiled = whole.keys() - self.records.keys()
        self.aside = {name.decode() for name in aside}
        """What could not be read when it was to be handed out, and may be again by now."""
        self.defined = {name.decode() for name in defined}
        self.counts = {name.decode(): int(value) for name, value in _pairs(counts)}
        self.dead = {name.decode() for name in dead}

    @property
    def is_open(self) -> bool:
        """A store that is being filled is nobody's business yet."""
        return self.epoch.isdigit()

    def contradictions(self) -> list[str]:
        live = {name for name, standing in self.records.items() if standing[0] in LIVE}
        found = [
            (live - self.queue.keys() - self.aside, "live and not in the set"),
            (self.queue.keys() - live - self.spoiled, "in the set and not live"),
            (self.queue.keys() & self.aside, "in the set and aside at once"),
            (self.records.keys() - self.defined, "without a definition"),
            ({name for name, score in self.queue.items() if score < 0 and self._state(name) != "queued"},
             "ready and held at once"),
        ]  # fmt: skip
        problems = [f"{len(ids)} tasks {what}: {sorted(ids)[:SHOWN]}" for ids, what in found if ids]
        recount = {state: sum(standing[0] == state for standing in self.records.values()) for state in LIVE}
        recount["queued"] += len(self.spoiled)  # only waiting tasks are spoiled
        counted = {state: self.counts.get(state, 0) for state in LIVE}
        return problems if recount == counted else [*problems, f"counts {counted}, a recount gives {recount}"]

    def _state(self, name: str) -> str:
        return "queued" if name in self.spoiled else self.records.get(name, ("",))[0]


def _pairs(flat: Any) -> Any:
    return zip(flat[::2], flat[1::2], strict=True)


class Lookout:
    """Looks until it is ended; what it saw is in the notebook, and the last look is kept."""

    def __init__(self, url: Callable[[], str], prefix: str, notebook: Notebook, every_seconds: float) -> None:
        self._url = url
        self._prefix = prefix
        self._notebook = notebook
        self._every_seconds = every_seconds

    async def run(self) -> None:
        while True:
            try:
                self._note(await self.look())
            except (RedisError, OSError, RuntimeError) as error:
                self._notebook.note("blind", problem=str(error))  # it is down
            await asyncio.sleep(self._every_seconds)

    def _note(self, look: Look) -> None:
        if look.is_open:
            ready = sum(score < 0 for score in look.queue.values())
            self._notebook.note("look", live=len(look.queue), ready=ready, problems=look.contradictions())

    async def look(self) -> Look:
        return Look(await self._ask("EVAL_RO", LOOK, 0, self._prefix))

    async def facts(self) -> dict[str, int]:
        """What must come back to where it was."""
        clients = await self._ask("INFO", "clients")
        return {
            "connections": int(clients["connected_clients"]),
            "outbox": int(await self._ask("XLEN", self._prefix + "outbox")),
            "keys": int(await self._ask("DBSIZE")),
        }

    async def last_entry(self) -> str:
        answer = await self._ask("XREVRANGE", self._prefix + "outbox", "+", "-", "COUNT", 1)
        return answer[0][0].decode() if answer else "0-0"

    async def _ask(self, *words: Any) -> Any:
        driver: Any = redis.Redis
        client = driver.from_url(self._url(), socket_timeout=5)
        async with contextlib.aclosing(client):
            return await client.execute_command(*words)
