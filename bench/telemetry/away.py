"""Measures an unavailable collector: whole lives with a collector that hangs, with one that refuses, and without.

Turns are short and many, so that other load on the machine affects all variants alike; together they last as long as
the collector is to be unavailable. Every task is traced, which gives the most spans to drop.
"""

import statistics
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, Findings, Table, Target, figure, ratio
from bench.http.jobs import Lives
from bench.http.lives import LIFE_ROUND
from bench.http.processes import ServerProcess, load
from bench.http.rates import LIFE_BATCH

ROUNDS_A_TURN = 20
MIN_TURNS = 3
MAX_SLOWER, MAX_GROWTH_MIB = 1.15, 32.0
PERCENTILES = {"p50": 49, "p99": 98}


class Turn(NamedTuple):
    lives_per_second: float
    milliseconds: dict[str, list[float]]


class Away(NamedTuple):
    """One variant: the service to call, and the processes whose memory counts."""

    service: ServerProcess
    monitor: ServerProcess

    async def turn(self) -> Turn:
        taken = await load(Lives(self.service.port, ROUNDS_A_TURN))
        return Turn(ROUNDS_A_TURN * LIFE_BATCH / taken.seconds, taken.milliseconds)

    def resident_mib(self) -> float:
        return sum(_resident_mib(process.pid) for process in (self.service, self.monitor))


async def measure(variants: Mapping[str, Away], base: str, seconds: float) -> Findings:
    for each in variants.values():
        await each.turn()
    before = {name: each.resident_mib() for name, each in variants.items()}
    turns, began = defaultdict[str, list[Turn]](list), time.monotonic()
    names = deque(variants)
    while time.monotonic() - began < seconds or len(turns[base]) < MIN_TURNS:
        for name in names:
            turns[name].append(await variants[name].turn())
        names.rotate()
    grown = {name: each.resident_mib() - before[name] for name, each in variants.items()}
    rows = tuple((name, *_row(turns[name], turns[base]), figure([grown[name]])) for name in variants)
    columns = ("for a minute", "tasks a second", "… of off", *_kinds(), "MiB grown, API and monitor")
    title = f"A collector that is unavailable for {seconds:.0f} s, every task traced: ratios to off"
    return Findings((Table(title, columns, rows),), tuple(_targets(turns, base, grown)))


def _kinds() -> list[str]:
    return [f"{kind} {name}" for kind in ("submit", LIFE_ROUND) for name in PERCENTILES]


def _row(turns: list[Turn], base: list[Turn]) -> list[Figure]:
    rates, off = ([each.lives_per_second for each in some] for some in (turns, base))
    slower = [
        ratio([_percentile(turns, kind, at)], [_percentile(base, kind, at)])
        for kind in ("submit", LIFE_ROUND)
        for at in PERCENTILES.values()
    ]
    return [figure(rates), figure([ratio(rates, off).median]), *slower]


def _targets(turns: Mapping[str, list[Turn]], base: str, grown: Mapping[str, float]) -> list[Target]:
    targets = list[Target]()
    for name in turns:
        if name != base:
            slower = 1 / ratio(*([each.lives_per_second for each in turns[one]] for one in (name, base))).median
            targets += [
                Target(f"{name}: time for a life, of off", MAX_SLOWER, round(slower, 2), ""),
                Target(f"{name}: memory grown, more than off", MAX_GROWTH_MIB, round(grown[name] - grown[base]), "MiB"),
            ]
    return targets


def _percentile(turns: list[Turn], kind: str, at: int) -> float:
    return statistics.quantiles([taken for turn in turns for taken in turn.milliseconds[kind]], n=100)[at]


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024
