"""One partition's wake-up channel, and a scan of its lanes with ready tasks."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tideq.queue_core.polls.lane_names import signatures
from tideq.queue_core.polls.poll import Use, parse_use
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.replies import accepted, instant, number, text
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.store.driver_errors import store_errors


class ReadyScan(NamedTuple):
    now_ms: int
    next_at_ms: int | None
    """When the next hidden task or silent worker falls due."""
    ready: Sequence[tuple[str, int]]
    """Lane signatures, each with its number of ready tasks."""
    uses: tuple[Use, ...] = ()
    """For one of several partitions: its use of each limit."""


class ReadyLanes:
    def __init__(self, scripts: Scripts, client: Any, keys: Keys) -> None:
        self.channel = keys.wake_channel
        self._scripts = scripts
        self._client = client
        self._keys = keys
        self._lanes_version = ""
        self._lane_names: dict[str, str] = {}

    async def scan(self, most: int) -> ReadyScan:
        now, version, next_at, ready, uses = accepted(await self._scripts.call("scan_ready", most=most))
        found: list[tuple[str, int]] = []
        for part in ready:
            lane, _, count = text(part).partition(":")
            found.append((await self.signature(text(version), lane), int(count)))
        return ReadyScan(number(now), instant(next_at), found, tuple(parse_use(text(use)) for use in uses))

    def cached_signature(self, version: str, lane: str) -> str | None:
        """Returns the lane's signature if it is cached for this version of the lanes."""
        return self._lane_names.get(lane) if version == self._lanes_version else None

    async def signature(self, version: str, lane: str) -> str:
        if self.cached_signature(version, lane) is None:
            with store_errors():
                names = await self._client.hgetall(self._keys.key("lane_names"))
            self._lane_names = signatures(names)
            self._lanes_version = version
        return self._lane_names.get(lane, "")
