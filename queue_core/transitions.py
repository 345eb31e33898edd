"""The state machine as data. Scripts, tests, the picture in README.md and the docs derive from it.

A row is a verb of the engine. `script` names the Lua file if it differs from the verb: recoveries run in any script
that finds the task due.
"""

from typing import NamedTuple

from tideq.queue_core.states import TaskState

S = TaskState


class Transition(NamedTuple):
    verb: str
    sources: tuple[TaskState, ...]
    targets: tuple[TaskState, ...]
    script: str
    revives: bool

    def allows(self, state: TaskState) -> bool:
        return state in self.sources


def moves(
    verb: str,
    *sources: TaskState,
    to: TaskState | tuple[TaskState, ...],
    by: str | None = None,
    revives: bool = False,
) -> Transition:
    targets = (to,) if isinstance(to, TaskState) else to
    return Transition(verb, sources, targets, by or verb, revives)


TRANSITIONS = (
    moves("submit", to=S.QUEUED),
    moves("claim", S.QUEUED, to=S.ASSIGNED),
    moves("start", S.ASSIGNED, to=S.EXECUTING),
    moves("complete", S.EXECUTING, to=S.COMPLETED),
    moves("fail", S.EXECUTING, to=(S.QUEUED, S.FAILED, S.DEAD_LETTER)),
    moves("release", S.ASSIGNED, S.EXECUTING, to=S.QUEUED),
    moves("lapse", S.ASSIGNED, to=(S.QUEUED, S.DEAD_LETTER), by="sweep"),
    moves("time_out", S.EXECUTING, to=(S.QUEUED, S.DEAD_LETTER), by="sweep"),
    moves("lose", S.EXECUTING, to=(S.QUEUED, S.DEAD_LETTER), by="sweep"),
    moves("cancel", S.QUEUED, S.ASSIGNED, S.EXECUTING, to=S.CANCELLED),
    moves("retry", S.FAILED, S.DEAD_LETTER, S.CANCELLED, to=S.QUEUED, by="requeue", revives=True),
    moves("replay", S.DEAD_LETTER, to=S.QUEUED, by="requeue", revives=True),
)

TERMINAL = frozenset(S) - {source for move in TRANSITIONS if not move.revives for source in move.sources}
LIVE = frozenset(S) - TERMINAL


def transition(verb: str) -> Transition:
    return next(move for move in TRANSITIONS if move.verb == verb)


def is_legal(source: TaskState | None, target: TaskState) -> bool:
    """Whether some verb leads from one state to the other; `None` is a task that does not exist yet."""
    sources = () if source is None else (source,)
    return any(
        target in move.targets and (set(sources) <= set(move.sources) if sources else not move.sources)
        for move in TRANSITIONS
    )
