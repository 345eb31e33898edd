"""Task types that an open or trial circuit holds back from a worker, because it failed too often."""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from tideq.api.schemas.base import Instant, ResponseSchema, about
from tideq.api.schemas.times import maybe_rfc3339
from tideq.queue_core.circuits import ALL_TYPES, CircuitState

OPEN = "most of its latest tasks of this type failed"
ON_TRIAL = "its next tasks of this type decide"


class BlockedTypeOut(ResponseSchema, kw_only=True):
    """One task type held back from a worker."""

    task_type: Annotated[str | None, about("Task type; null for all types.", "resize")]
    until: Annotated[Instant | None, about("When the trial begins; null during the trial.")]
    reason: Annotated[str, about("Reason in words.", OPEN)]


WorkerBlockedTypes = Annotated[
    list[BlockedTypeOut],
    about("Types of which the worker gets no tasks, or only trial tasks, because it failed too often.", []),
]
BlockedTypesIfAny = WorkerBlockedTypes | msgspec.UnsetType
"""Left out of the response if empty."""


def blocked_types_out(circuits: Iterable[CircuitState]) -> list[BlockedTypeOut]:
    return [
        BlockedTypeOut(
            task_type=None if circuit.task_type == ALL_TYPES else circuit.task_type,
            until=maybe_rfc3339(circuit.until_ms),
            reason=OPEN if circuit.is_open else ON_TRIAL,
        )
        for circuit in circuits
    ]


def blocked_types_if_any(circuits: tuple[CircuitState, ...]) -> list[BlockedTypeOut] | msgspec.UnsetType:
    return blocked_types_out(circuits) if circuits else msgspec.UNSET
