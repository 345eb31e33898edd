"""Ways for tasks to die that operators should hear of: new ones, and those that suddenly became many."""

from typing import NamedTuple

from tideq.persistence.database import WRITING, Database, statement

SURGE_COUNT = 10


class PatternAlert(NamedTuple):
    pattern: str
    task_type: str
    reason: str
    message: str
    """Normalised: no ids, numbers or quoted texts of any one task."""
    death_count: int
    told_count: int
    """Deaths at the last telling; none for a new pattern."""

    @property
    def is_new(self) -> bool:
        return self.told_count == 0


class PatternWatch:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def news(self) -> list[PatternAlert]:
        """Each piece is handed out once, however many ask."""
        async with self._database.session(limits=WRITING) as connection:
            found = await connection.execute(statement("tell_patterns"), {"surge_count": SURGE_COUNT})
            return [PatternAlert(*row) for row in await found.fetchall()]
