"""What a worker gets nothing of, or only a few to try, because it failed too often."""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from tideq.api.schemas.base import Instant, ResponseSchema, about
from tideq.api.schemas.times import maybe_rfc3339
from tideq.queue_core.circuits import ALL_TYPES, HeldBack

OPEN = "most of its latest tasks of this type failed"
ON_TRIAL = "its next tasks of this type decide"


class HeldBackOut(ResponseSchema, kw_only=True):
    """One task type a worker is held back from."""

    task_type: Annotated[str | None, about("Null for all types together.", "resize")]
    until: Annotated[Instant | None, about("When it may try again; null while its next results decide.")]
    reason: Annotated[str, about("Why.", OPEN)]


WorkerHeldBack = Annotated[
    list[HeldBackOut], about("Types the worker gets nothing of, or a few to try, because it failed too often.", [])
]
HeldBackIfAny = WorkerHeldBack | msgspec.UnsetType
"""Left out of an answer where there is nothing to say."""


def held_back_out(circuits: Iterable[HeldBack]) -> list[HeldBackOut]:
    return [
        HeldBackOut(
            task_type=None if circuit.task_type == ALL_TYPES else circuit.task_type,
            until=maybe_rfc3339(circuit.until_ms),
            reason=OPEN if circuit.is_open else ON_TRIAL,
        )
        for circuit in circuits
    ]


def held_back_if_any(circuits: tuple[HeldBack, ...]) -> list[HeldBackOut] | msgspec.UnsetType:
    return held_back_out(circuits) if circuits else msgspec.UNSET
