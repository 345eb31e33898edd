"""The samples of a turn, its amounts, and the part of a measurement that counts."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

Spent = dict[str, float]
"""CPU in µs, by process."""


class Point(NamedTuple):
    """One reading of a queue while workers process it."""

    at: float
    left: int
    spent: Spent


def is_over(points: Sequence[Point], seconds: float) -> bool:
    """Whether 95 % of the tasks are done, or `seconds` have passed since the first completion."""
    count, last = points[0].left, points[-1]
    began = next((point.at for point in points if point.left < count), last.at)
    return last.left <= count // 20 or last.at - began >= seconds


def window(points: Sequence[Point]) -> tuple[Point, Point]:
    """From 5 % done to the last reading with tasks left: an empty queue does not show when it became empty.

    Falls back to the first and last reading where no progress shows in between, because some peers complete tasks in
    large batches.
    """
    busy = [point for point in points if 0 < point.left <= points[0].left * 19 // 20]
    return (busy[0], busy[-1]) if busy and busy[-1].left < busy[0].left else (points[0], points[-1])


class Amount(msgspec.Struct, frozen=True):
    """The amounts of a turn."""

    enqueue_seconds: float
    process_seconds: float
    probes: int
    at_once: int = 32
    crowd: int = 256
    """A second value of `at_once`, for peers that gain from more concurrency."""
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
    """For each task submitted in bulk."""
    work_cpu_us: Spent = msgspec.field(default_factory=Spent)
    """For each task processed, from waiting to acknowledged."""
    single_cpu_us: Spent = msgspec.field(default_factory=Spent)
    """For each task submitted singly, one after the other."""
    caught_up_seconds: float | None = None
    """The time from the last acknowledgement until history had all events."""

    @property
    def single_best(self) -> float | None:
        """The rate with the best number of concurrent calls."""
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
    """CPU spent between the two readings for each task, without the process that only observes."""
    return {name: (after[name] - before[name]) / count for name in after if name != leave_out}
