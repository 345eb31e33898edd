"""The board: where each process that has duties says how they do, for those who ask another process.

A word every few seconds, kept in partition 0 for an hour. What somebody did within the hour and nobody does now is said
as well: the process that did it may be gone altogether. Not a lock and no election: nothing is decided by it.
"""

import os
import socket
from typing import Any, NamedTuple

import msgspec

from tideq.queue_core.duties import Duties
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.replies import text
from tideq.queue_core.store.clock import server_now_ms
from tideq.queue_core.store.driver_errors import store_errors

BEAT_SECONDS = 10.0
SILENT_MS, FORGOTTEN_MS = 60_000, 3_600_000


class Posted(msgspec.Struct, frozen=True):
    """Persisted: give what is added a default."""

    at_ms: int
    kept: tuple[str, ...] = ()
    stale: dict[str, float] = {}
    """Seconds since each of these was done."""


class Elsewhere(NamedTuple):
    """A duty that is not done, as far as other processes said."""

    duty: str
    process: str
    """That should do it, or was the last to."""
    seconds: float


class DutyBoard:
    def __init__(self, client: Any, keys: Keys, process: str = "") -> None:
        self._client = client
        self._keys = keys
        self._key = keys.key("duties")
        self._process = process or f"{socket.gethostname()}:{os.getpid()}"

    async def post_for_ever(self, duties: Duties) -> None:
        await duties.add_periodic("duty board", BEAT_SECONDS, lambda: self.post(duties))

    async def post(self, duties: Duties) -> None:
        stale = {each.duty: each.seconds for each in duties.stale}
        word = Posted(await server_now_ms(self._client, self._keys), duties.names, stale)
        with store_errors():
            await self._client.hset(self._key, self._process, msgspec.json.encode(word))

    async def elsewhere(self) -> list[Elsewhere]:
        """Of other processes. Those that said nothing for an hour are forgotten."""
        now_ms = await server_now_ms(self._client, self._keys)
        with store_errors():
            kept = await self._client.hgetall(self._key)
            posted = {text(process): word for process, value in kept.items() if (word := _read(value))}
            old = [each for each, word in posted.items() if now_ms - word.at_ms > FORGOTTEN_MS]
            if old:
                await self._client.hdel(self._key, *old)
        heard = {each: word for each, word in posted.items() if now_ms - word.at_ms <= FORGOTTEN_MS}
        alive = {each: word for each, word in heard.items() if now_ms - word.at_ms <= SILENT_MS}
        done = {duty for word in alive.values() for duty in word.kept}
        missing = {
            duty: Elsewhere(duty, process, (now_ms - word.at_ms) / 1000)
            for process, word in sorted(heard.items(), key=lambda each: each[1].at_ms)
            for duty in word.kept
            if duty not in done
        }
        stale = [
            Elsewhere(duty, process, seconds)
            for process, word in alive.items()
            if process != self._process
            for duty, seconds in word.stale.items()
        ]
        return sorted([*stale, *missing.values()])


def _read(value: bytes) -> Posted | None:
    """Of a later version that changed its form: nothing."""
    try:
        return msgspec.json.decode(value, type=Posted)
    except msgspec.DecodeError:
        return None
