"""What a turn measures, how much of it, and which part of it counts."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

Spent = dict[str, float]
"""CPU in µs, by the one who spent it."""


class Point(NamedTuple):
    """A look at a queue that is being worked off."""

    at: float
    left: int
    spent: Spent


def is_over(points: Sequence[Point], seconds: float) -> bool:
    """When all but a twentieth is done, or it has been going on for so long: from the first that was done."""
    count, last = points[0].left, points[-1]
    began = next((point.at for point in points if point.left < count), last.at)
    return last.left <= count // 20 or last.at - began >= seconds


def window(points: Sequence[Point]) -> tuple[Point, Point]:
    """From a twentieth done to the last look that found workers busy: an empty queue tells not when it became so.

    The first and the last look where nothing was seen to be done in between: tasks are done in large batches, too.
    """
    busy = [point for point in points if 0 < point.left <= points[0].left * 19 // 20]
    return (busy[0], busy[-1]) if busy and busy[-1].left < busy[0].left else (points[0], points[-1])


class Amount(msgspec.Struct, frozen=True):
    """How much a turn measures."""

    enqueue_seconds: float
    process_seconds: float
    probes: int
    at_once: int = 32
    crowd: int = 256
    """As `at_once`, for whoever gains from more."""
    worker_count: int = 1
    is_whole: bool = True
    """False leaves out single submissions and latency."""


class Sample(msgspec.Struct, kw_only=True):
    version: str = ""
    round_number: int = 0
    single: float | None = None
    single_at_once: float | None = None
    single_crowd: float | None = None
    bulk: float | None = None
    processed: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    bytes_a_task: float | None = None
    bulk_cpu_us: Spent = msgspec.field(default_factory=Spent)
    """A task submitted in bulk."""
    work_cpu_us: Spent = msgspec.field(default_factory=Spent)
    """A task worked off, from waiting to acknowledged."""
    single_cpu_us: Spent = msgspec.field(default_factory=Spent)
    """A task submitted by itself, one after the other."""
    caught_up_seconds: float | None = None
    """How long after the last acknowledgement history had everything."""

    @property
    def single_best(self) -> float | None:
        """With as many calls under way as suit it best."""
        return max(filter(None, (self.single, self.single_at_once, self.single_crowd)), default=None)

    @property
    def cpu_us(self) -> Spent:
        """From bulk submission to acknowledgement."""
        bulk, work = self.bulk_cpu_us, self.work_cpu_us
        return {name: bulk.get(name, 0.0) + work.get(name, 0.0) for name in (*bulk, *work)}

    @property
    def total_us(self) -> float | None:
        return sum(self.cpu_us.values()) if self.work_cpu_us else None

    @property
    def bulk_us(self) -> float | None:
        return sum(self.bulk_cpu_us.values()) or None

    @property
    def work_us(self) -> float | None:
        return sum(self.work_cpu_us.values()) or None

    @property
    def single_us(self) -> float | None:
        return sum(self.single_cpu_us.values()) or None


def charged(before: Spent, after: Spent, count: int, leave_out: str) -> Spent:
    """What was spent between, to each task; whoever only watched is left out."""
    return {name: (after[name] - before[name]) / count for name in after if name != leave_out}
