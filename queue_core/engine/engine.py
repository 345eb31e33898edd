"""The whole engine on one store: what the API, the monitor and the tests are given."""

from dataclasses import dataclass
from typing import Any

from tideq.queue_core.engine.attempts import Attempts
from tideq.queue_core.engine.controls import Controls
from tideq.queue_core.engine.fleet import Fleet
from tideq.queue_core.engine.insight import Insight
from tideq.queue_core.engine.policy import scripts_for
from tideq.queue_core.engine.queue import Queue
from tideq.queue_core.engine.scripts import Scripts
from tideq.queue_core.settings import QueueSettings


@dataclass(frozen=True)
class Engine:
    scripts: Scripts
    queue: Queue
    attempts: Attempts
    fleet: Fleet
    controls: Controls
    insight: Insight


def assemble_engine(client: Any, settings: QueueSettings, *, sends_flags: bool = True) -> Engine:
    """`sends_flags=False` is for stores whose Lua knows no `#!lua` line (fakeredis)."""
    scripts = scripts_for(client, settings, sends_flags=sends_flags)
    return Engine(
        scripts=scripts,
        queue=Queue(scripts, settings),
        attempts=Attempts(scripts, settings),
        fleet=Fleet(scripts),
        controls=Controls(scripts),
        insight=Insight(scripts),
    )
