"""What one partition tells those who wait: its channel, and a look at what is ready in its lanes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.engine.lane_names import signatures
from tideq.queue_core.engine.polls import Use, parse_use
from tideq.queue_core.engine.replies import accepted, instant, number, text
from tideq.queue_core.engine.scripts import Scripts
from tideq.queue_core.engine.store_errors import store_errors


class Survey(NamedTuple):
    now_ms: int
    next_at_ms: int | None
    """When the next hidden task or silent worker falls due."""
    ready: Sequence[tuple[str, int]]
    """Lane signatures, and how many tasks each has."""
    uses: tuple[Use, ...] = ()
    """Of one of several partitions: how much of each limit is in use there."""


class WakeSource:
    def __init__(self, scripts: Scripts, client: Any, keys: Keys) -> None:
        self.channel = keys.wake_channel
        self._scripts = scripts
        self._client = client
        self._keys = keys
        self._lanes_version = ""
        self._lane_names: dict[str, str] = {}

    async def survey(self, most: int) -> Survey:
        now, version, next_at, ready, uses = accepted(await self._scripts.call("survey", most=most))
        found: list[tuple[str, int]] = []
        for part in ready:
            lane, _, count = text(part).partition(":")
            found.append((await self.signature(text(version), lane), int(count)))
        return Survey(number(now), instant(next_at), found, tuple(parse_use(text(use)) for use in uses))

    def known_signature(self, version: str, lane: str) -> str | None:
        """What needs no asking."""
        return self._lane_names.get(lane) if version == self._lanes_version else None

    async def signature(self, version: str, lane: str) -> str:
        if self.known_signature(version, lane) is None:
            with store_errors():
                names = await self._client.hgetall(self._keys.key("lane_names"))
            self._lane_names = signatures(names)
            self._lanes_version = version
        return self._lane_names.get(lane, "")
