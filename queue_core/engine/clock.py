"""Moving the store's clock: for tests and `tideq.testing`. Production never sets the offset."""

from typing import Any

from tideq.queue_core.engine.keys import Keys


class StoreClock:
    """Of all partitions whose keys it is given."""

    def __init__(self, client: Any, *keys: Keys) -> None:
        self._client = client
        self._metas = [each.key("meta") for each in keys]

    async def advance(self, milliseconds: int) -> None:
        """Let this much time pass at once. The queue's time never runs backwards, whatever is asked."""
        for meta in self._metas:
            await self._client.hincrby(meta, "clock_offset_ms", milliseconds)
