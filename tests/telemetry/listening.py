"""A listener that keeps what it hears, and followers to hear it from."""

from collections.abc import Sequence

from tests.kit import Kit
from tideq.queue_core.outbox.monitor_cursor import MonitorCursor
from tideq.workers.monitor.journal.follower import Follower, TransitionListener
from tideq.workers.monitor.journal.transition import ObservedTransition


class Ear:
    def __init__(self, *, wants_origins: bool = False) -> None:
        self.wants_origins = wants_origins
        self.heard: list[ObservedTransition] = []

    def observe(self, transitions: Sequence[ObservedTransition]) -> None:
        self.heard += transitions

    def moves(self) -> list[tuple[str, str, str]]:
        return [(each.source, each.state, each.reason) for each in self.heard]

    def phases(self) -> list[tuple[str, int]]:
        return [(phase.name, phase.ended_ms - phase.began_ms) for each in self.heard for phase in each.phases]


class Reader(Ear):
    """Reads all that metrics and spans read before it goes on to the next."""

    def observe(self, transitions: Sequence[ObservedTransition]) -> None:
        for each in transitions:
            assert (each.step_key, each.phases, each.is_requeued, each.worker_id, each.life) is not None
            assert each.retry_count + each.loss_count + each.delivery_count >= 0
            self.heard.append(each)


def journal(kit: Kit) -> MonitorCursor:
    return MonitorCursor(kit.client, kit.engine.scripts, kit.keys)


async def follower(kit: Kit, *listeners: TransitionListener) -> Follower:
    """One that has found the beginning: what happens from here on it will tell."""
    made = Follower(journal(kit), listeners)
    await made.step()
    return made


async def follow(made: Follower) -> None:
    """Until nothing is new."""
    count = -1
    while made.published_count != count:
        count = made.published_count
        await made.step()
