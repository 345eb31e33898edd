"""The clocks of PostgreSQL, of the store's servers and of this process.

Partitions use only PostgreSQL's clock. Nothing is dropped while the clocks differ by more than an hour.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from tideq.persistence.database import Connection
from tideq.queue_core.engine import Engine
from tideq.queue_core.errors import HistoryUnavailable
from tideq.queue_core.store.clock import server_now_ms

MAX_DIFFERENCE_MS = 3_600_000

StoreInstants = Callable[[], Awaitable[Sequence[int]]]
"""Returns the clocks of the store's servers in Unix milliseconds."""


class ClocksDiffer(HistoryUnavailable):
    """A clock is wrong, so the age of partitions is uncertain."""


class Clocks(NamedTuple):
    database_ms: int
    process_ms: int
    store_ms: tuple[int, ...] = ()

    @property
    def difference_ms(self) -> int:
        """The largest difference between two clocks."""
        instants = (self.database_ms, self.process_ms, *self.store_ms)
        return max(instants) - min(instants)

    def check(self) -> None:
        if self.difference_ms > MAX_DIFFERENCE_MS:
            store = "".join(f", the store's {self._offset_text(each)}" for each in self.store_ms)
            raise ClocksDiffer(
                "clocks differ by more than an hour, so nothing old is dropped: "
                f"this machine's is {self._offset_text(self.process_ms)}{store}"
            )

    def _offset_text(self, instant_ms: int) -> str:
        seconds = (instant_ms - self.database_ms) / 1000
        return f"{abs(seconds):.0f} s {'behind' if seconds < 0 else 'ahead of'} PostgreSQL's"


async def store_instants(client: Any, engine: Engine) -> list[int]:
    """Returns the clocks of the servers of all partitions. Needs an unguarded client."""
    return [await server_now_ms(client, part.keys) for part in engine.parts]


async def database_now_ms(connection: Connection) -> int:
    found = await connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
    ((now_ms,),) = await found.fetchall()
    return now_ms
