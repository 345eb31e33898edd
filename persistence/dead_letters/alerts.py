"""Alerts of dead-letter patterns: new ones, and those that suddenly became frequent."""

from typing import NamedTuple

from tideq.persistence.database import WRITING, Database, statement

SURGE_COUNT = 10


class PatternAlert(NamedTuple):
    pattern: str
    task_type: str
    reason: str
    message: str
    """Normalised: without the ids, numbers and quoted texts of a single task."""
    death_count: int
    alerted_count: int
    """Deaths at the last alert; 0 for a new pattern."""

    @property
    def is_new(self) -> bool:
        return self.alerted_count == 0


class PatternAlerts:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def take_new(self) -> list[PatternAlert]:
        """Returns the alerts since the last call; each is returned to one caller only."""
        async with self._database.session(limits=WRITING) as connection:
            found = await connection.execute(statement("mark_alerted"), {"surge_count": SURGE_COUNT})
            return [PatternAlert(*row) for row in await found.fetchall()]
