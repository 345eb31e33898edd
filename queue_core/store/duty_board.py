"""The duty board: processes publish the state of their duties, so that any process can show all of them.

Every process writes a report every few seconds, kept in partition 0 for an hour. A duty that was reported within the
hour and that no live process has now is listed as missed, since its process may be gone. The board is only shown: it is
neither a lock nor an election.
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


class DutyReport(msgspec.Struct, frozen=True):
    """The duties of one process. Persisted as JSON: add fields with defaults, never rename one."""

    at_ms: int
    kept: tuple[str, ...] = ()
    stale: dict[str, float] = {}
    """Stale duties, with the seconds since their last success."""


class MissedDuty(NamedTuple):
    """A duty that is stale in another process, or that no live process has."""

    duty: str
    process: str
    """The process that has the duty, or had it last."""
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
        report = DutyReport(await server_now_ms(self._client, self._keys), duties.names, stale)
        with store_errors():
            await self._client.hset(self._key, self._process, msgspec.json.encode(report))

    async def elsewhere(self) -> list[MissedDuty]:
        """Returns the missed duties of other processes. Also deletes reports that are older than an hour."""
        now_ms = await server_now_ms(self._client, self._keys)
        with store_errors():
            stored = await self._client.hgetall(self._key)
            reports = {text(process): report for process, value in stored.items() if (report := _read(value))}
            old = [each for each, report in reports.items() if now_ms - report.at_ms > FORGOTTEN_MS]
            if old:
                await self._client.hdel(self._key, *old)
        recent = {each: report for each, report in reports.items() if now_ms - report.at_ms <= FORGOTTEN_MS}
        alive = {each: report for each, report in recent.items() if now_ms - report.at_ms <= SILENT_MS}
        done = {duty for report in alive.values() for duty in report.kept}
        missing = {
            duty: MissedDuty(duty, process, (now_ms - report.at_ms) / 1000)
            for process, report in sorted(recent.items(), key=lambda each: each[1].at_ms)
            for duty in report.kept
            if duty not in done
        }
        stale = [
            MissedDuty(duty, process, seconds)
            for process, report in alive.items()
            if process != self._process
            for duty, seconds in report.stale.items()
        ]
        return sorted([*stale, *missing.values()])


def _read(value: bytes) -> DutyReport | None:
    """Returns None for a report of a later version that this one cannot read."""
    try:
        return msgspec.json.decode(value, type=DutyReport)
    except msgspec.DecodeError:
        return None
