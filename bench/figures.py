"""Figures of a measurement: samples of alternating rounds, their median and spread, and targets to compare with."""

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Figure(msgspec.Struct, frozen=True):
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """From the lowest to the highest round, as a share of the median."""
        return (max(self.samples) - min(self.samples)) / self.median if self.median else 0.0

    def __str__(self) -> str:
        digits = 0 if self.median >= 1_000 else 1 if self.median >= 10 else 2
        spread = f" ±{self.spread / 2:.0%}" if len(self.samples) > 1 else ""
        return f"{self.median:_.{digits}f}{spread}"


class Table(msgspec.Struct, frozen=True):
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Figure, ...], ...]
    note: str = ""


class Target(msgspec.Struct, frozen=True):
    name: str
    limit: float
    measured: float
    unit: str

    @property
    def is_reached(self) -> bool:
        return self.measured <= self.limit


class Findings(msgspec.Struct, frozen=True):
    """The results of one benchmark."""

    tables: tuple[Table, ...]
    targets: tuple[Target, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """The sizes of a run."""

    rounds: int
    depths: tuple[int, ...]
    tasks_by_batch: dict[int, int]
    other_lane_tasks: int
    lane_counts: tuple[int, ...]
    stored_tasks: int
    http_requests: int
    http_tasks: int
    http_deliveries: int
    away_seconds: float
    """How long the trace collector is unavailable."""
    history_tasks: int
    history_seconds: int
    history_live_tasks: tuple[int, ...]
    history_rebuilds: int
    history_rows: int
    history_pages: int


FULL = Plan(
    rounds=5,
    depths=(10_000, 100_000, 1_000_000),
    tasks_by_batch={1: 1_000, 10: 5_000, 100: 10_000},
    other_lane_tasks=100_000,
    lane_counts=(1, 10, 100, 2_000),
    stored_tasks=100_000,
    http_requests=5_000,
    http_tasks=20_000,
    http_deliveries=300,
    away_seconds=60,
    history_tasks=50_000,
    history_seconds=10,
    history_live_tasks=(100_000, 1_000_000),
    history_rebuilds=3,
    history_rows=10_000_000,
    history_pages=100,
)
QUICK = Plan(
    rounds=3,
    depths=(10_000, 50_000),
    tasks_by_batch={1: 200, 10: 1_000, 100: 3_000},
    other_lane_tasks=20_000,
    lane_counts=(1, 10, 100, 2_000),
    stored_tasks=20_000,
    http_requests=1_000,
    http_tasks=5_000,
    http_deliveries=100,
    away_seconds=60,
    history_tasks=20_000,
    history_seconds=4,
    history_live_tasks=(100_000,),
    history_rebuilds=2,
    history_rows=1_000_000,
    history_pages=30,
)


async def take_turns(rounds: int, variants: Mapping[str, Callable[[], Awaitable[T]]]) -> dict[str, list[T]]:
    """Runs every variant once a round; each round begins with another variant, so that drift affects all alike."""
    samples: dict[str, list[T]] = {name: [] for name in variants}
    names = list(variants)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            samples[name].append(await variants[name]())
    return samples


def figure(samples: Sequence[float]) -> Figure:
    return Figure(tuple(samples))


def ratio(samples: Sequence[float], base: Sequence[float]) -> Figure:
    """The ratio of each round, so that a disturbance of both variants cancels out."""
    return Figure(tuple(one / other for one, other in zip(samples, base, strict=True)))
