"""Moving the store's clock: for tests and `tideq.testing`. Production never sets the offset."""

from typing import Any

from tideq.queue_core.engine.keys import Keys


class StoreClock:
    def __init__(self, client: Any, keys: Keys) -> None:
        self._client = client
        self._meta = keys.key("meta")

    async def advance(self, milliseconds: int) -> None:
        """Let this much time pass at once. The queue's time never runs backwards, whatever is asked."""
        await self._client.hincrby(self._meta, "clock_offset_ms", milliseconds)
