"""A listener that keeps what it hears, and followers to hear it from."""

from collections.abc import Sequence

from tests.kit import Kit
from tideq.queue_core.engine.journal import JournalStore
from tideq.workers.monitor.journal.follower import Follower, Listener
from tideq.workers.monitor.journal.transition import Transition


class Ear:
    def __init__(self, *, wants_origins: bool = False) -> None:
        self.wants_origins = wants_origins
        self.heard: list[Transition] = []

    def hear(self, transitions: Sequence[Transition]) -> None:
        self.heard += transitions

    def moves(self) -> list[tuple[str, str, str]]:
        return [(each.source, each.state, each.reason) for each in self.heard]

    def phases(self) -> list[tuple[str, int]]:
        return [(phase.name, phase.ended_ms - phase.began_ms) for each in self.heard for phase in each.phases]


class Reader(Ear):
    """Reads all that metrics and spans read before it goes on to the next."""

    def hear(self, transitions: Sequence[Transition]) -> None:
        for each in transitions:
            assert (each.looks, each.phases, each.is_revived, each.worker_id, each.life) is not None
            assert each.retry_count + each.loss_count + each.delivery_count >= 0
            self.heard.append(each)


def journal(kit: Kit) -> JournalStore:
    return JournalStore(kit.client, kit.engine.scripts, kit.keys)


async def follower(kit: Kit, *listeners: Listener) -> Follower:
    """One that has found the beginning: what happens from here on it will tell."""
    made = Follower(journal(kit), listeners)
    await made.step()
    return made


async def follow(made: Follower) -> None:
    """Until nothing is new."""
    count = -1
    while made.told_count != count:
        count = made.told_count
        await made.step()
