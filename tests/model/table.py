"""What must have fired in a run of the model test, and how often it did."""

from collections import Counter
from collections.abc import Iterator

from tideq.queue_core.transitions import TRANSITIONS

MIN_COUNT = 50

LEASED = ("task-not-found", "stale-lease", "wrong-state")
REFUSALS = {
    "submit": ("idempotency-conflict", "rank-out-of-range"),
    "claim": ("unknown-worker",),
    "start": LEASED,
    "extend": LEASED,
    "progress": LEASED,
    "complete": LEASED,
    "fail": LEASED,
    "release": LEASED,
    "cancel": ("task-not-found", "wrong-state"),
    "purge": ("task-not-found", "wrong-state"),
    "retry": ("task-not-found", "wrong-state"),
    "replay": ("task-not-found", "wrong-state"),
    "heartbeat": ("unknown-worker",),
    "judge": ("unknown-worker",),
    "dismiss": ("unknown-worker",),
    "register": ("worker-exists",),
    "other epoch": ("store-replaced",),
}
"""By verb. What only fills a store or its limits (queue, outbox, memory, lanes, rates) is for the contract suite."""


def required() -> list[str]:
    moves = [f"{move.verb} → {target}" for move in TRANSITIONS for target in move.targets]
    return [
        *moves,
        "circuit → open",
        "circuit → closed",
        *(f"{verb} ✗ {code}" for verb, codes in REFUSALS.items() for code in codes),
    ]


def rare(fired: Counter[str]) -> list[str]:
    return [name for name in required() if fired[name] < MIN_COUNT]


def lines(fired: Counter[str]) -> Iterator[str]:
    """The required first, in their order, then whatever else happened."""
    names = [*required(), *sorted(fired.keys() - set(required()))]
    cells = [f"{name:<34}{fired[name]:>7}" for name in names]
    for at in range(0, len(cells), 2):
        yield "   ".join(cells[at : at + 2])
