"""Circuits: the task types that a failing worker gets no tasks of. Pure; the rule is in `circuit_breaker.lua`."""

from collections.abc import Iterable

import msgspec

ALL_TYPES = "*"


class CircuitState(msgspec.Struct, frozen=True):
    """An open circuit (no tasks of the type until an instant) or one on trial (a few tasks decide)."""

    task_type: str
    """`*` for all types together."""
    until_ms: int | None
    """When an open circuit goes on trial; None while it is on trial."""

    @property
    def is_open(self) -> bool:
        return self.until_ms is not None


def parse_circuits(text: str) -> tuple[CircuitState, ...]:
    """Parse `<type> open <until>` and `<type> trial <good>`; other kinds, which partitions exchange, are skipped."""
    words = text.split()
    return tuple(
        sorted(
            (
                CircuitState(scope, int(amount) if kind == "open" else None)
                for scope, kind, amount in zip(words[::3], words[1::3], words[2::3], strict=True)
                if kind in ("open", "trial")
            ),
            key=lambda each: each.task_type,
        )
    )


def merged_circuits(circuits: Iterable[Iterable[CircuitState]]) -> tuple[CircuitState, ...]:
    """Merge one worker's circuits of several partitions: a type open in any partition is open."""
    latest: dict[str, int | None] = {}
    for each in (each for of_partition in circuits for each in of_partition):
        latest[each.task_type] = max(filter(None, (latest.get(each.task_type), each.until_ms)), default=None)
    return tuple(CircuitState(task_type, latest[task_type]) for task_type in sorted(latest))


def circuit_summary(circuits: Iterable[CircuitState]) -> str:
    """Returns `open` if any circuit is open, else `trial` if any is on trial, else `closed`."""
    kinds = {each.is_open for each in circuits}
    return "open" if True in kinds else "trial" if kinds else "closed"
