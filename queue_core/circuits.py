"""From which task types workers are held back, as scripts write it. Pure; the rule is in `circuit.lua`."""

from collections.abc import Iterable

import msgspec

ALL_TYPES = "*"


class HeldBack(msgspec.Struct, frozen=True):
    """A worker that failed at most of what it was given of a type gets no more of it, and then a few to try."""

    task_type: str
    """`*` for all types together."""
    until_ms: int | None
    """`None` while its next results decide."""

    @property
    def is_open(self) -> bool:
        return self.until_ms is not None


def parse_circuits(text: str) -> tuple[HeldBack, ...]:
    """`<type> open <until>` or `<type> trial <good>` for each; of several partitions there is more, for claims."""
    words = text.split()
    return tuple(
        sorted(
            (
                HeldBack(scope, int(amount) if kind == "open" else None)
                for scope, kind, amount in zip(words[::3], words[1::3], words[2::3], strict=True)
                if kind in ("open", "trial")
            ),
            key=lambda each: each.task_type,
        )
    )


def merged_circuits(circuits: Iterable[Iterable[HeldBack]]) -> tuple[HeldBack, ...]:
    """One worker's as several partitions have them: where one is open, it is."""
    latest: dict[str, int | None] = {}
    for each in (each for told in circuits for each in told):
        latest[each.task_type] = max(filter(None, (latest.get(each.task_type), each.until_ms)), default=None)
    return tuple(HeldBack(task_type, latest[task_type]) for task_type in sorted(latest))


def circuit_word(circuits: Iterable[HeldBack]) -> str:
    """How a worker stands in one word: `open`, `trial` or `closed`."""
    kinds = {each.is_open for each in circuits}
    return "open" if True in kinds else "trial" if kinds else "closed"
