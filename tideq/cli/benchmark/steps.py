"""The two things that are measured again and again: handing in tasks, and doing them. Counts what it has added."""

from collections import Counter
from collections.abc import Callable

import msgspec

from tideq.cli.benchmark.bars import Bars
from tideq.cli.benchmark.findings import Figure, seconds_until, times
from tideq.cli.benchmark.messages import Pace, Submit, Submitted, Worked
from tideq.cli.benchmark.benched_service import BenchedService
from tideq.cli.benchmark.plan import Plan
from tideq.cli.benchmark.processes import ProcessGroup


class Label(msgspec.Struct, frozen=True):
    """Where a figure belongs."""

    name: str
    title: str
    group: str
    series: str = ""
    x: float | None = None


class Steps:
    def __init__(self, place: BenchedService, plan: Plan, team: ProcessGroup, bars: Bars) -> None:
        self.place, self.plan = place, plan
        self._team, self._bars = team, bars
        self.submitted = self.processed = 0

    @property
    def left(self) -> int:
        return max(self.submitted - self.processed, 0)

    def submit(self, label: Label, count: int, batch: int, payload_bytes: int = 0) -> Figure:
        """As fast as it goes, from all processes that load."""
        size = payload_bytes or self.plan.payload_bytes
        with self._bars.step(label.title, count) as advance:
            cpu = self.place.cpu_seconds()
            answers = self._team.load(self._orders(count, batch, size), advance)
            cpu_us = self._spent_us(cpu, count)
        self.submitted += count
        seconds = max(each.ended for each in answers) - min(each.began for each in answers)
        waited = [ms for each in answers for ms in each.answer_ms]
        return Figure(
            **msgspec.structs.asdict(label),
            tasks=count,
            seconds=seconds,
            per_second=count / seconds,
            payload_bytes=size,
            times=times(waited) if batch == 1 else None,
            load_cpu_share=max(each.cpu_seconds for each in answers) / seconds,
            service_cpu_us=cpu_us,
        )

    def fill(self, depth: int, title: str) -> None:
        """Until as many wait; not measured."""
        if (missing := depth - self.left) > 0:
            self.submit(Label("", title, ""), missing, self.plan.batch_of(self.plan.payload_bytes))

    def work(self, label: Label, count: int, workers: int, payload_bytes: int = 0) -> Figure:
        """So many of the tasks that wait."""
        with self._bars.step(label.title, count) as advance:
            cpu = self.place.cpu_seconds()
            worked = self._team.work(workers, count, advance)
            done = sum(each.count for each in worked)
            cpu_us = self._spent_us(cpu, done)
        self.processed += done
        seconds = seconds_until(count, min(each.began for each in worked), _moments(worked))
        return Figure(
            **msgspec.structs.asdict(label),
            tasks=count,
            seconds=seconds,
            per_second=count / seconds,
            payload_bytes=payload_bytes or self.plan.payload_bytes,
            worker_cpu_share=_share(worked),
            service_cpu_us=cpu_us,
        )

    def drain(self, title: str) -> None:
        """All that is left; not measured."""
        if self.left:
            self.work(Label("", title, ""), self.left, self.plan.workers)

    def pace(self, title: str) -> tuple[Submitted, list[Worked], float | None]:
        """Tasks one by one at an even pace, to workers that wait."""
        plan = self.plan
        order = Pace(max(round(plan.rate * plan.seconds), 1), plan.rate, plan.payload_bytes)
        with self._bars.step(title, order.count) as advance:
            cpu = self.place.cpu_seconds()
            (submitted,), worked = self._team.work_beside(plan.workers, order, advance)
            cpu_us = self._spent_us(cpu, order.count)
        self.submitted += order.count
        self.processed += sum(each.count for each in worked)
        return submitted, worked, cpu_us

    def count_again(self) -> None:
        """After a refusal nobody knows how many were taken before it."""
        self.submitted = self.processed + self.place.backlog()

    def clear(self, until: Callable[[], int], title: str) -> None:
        """Whatever is left there, by its own count: of a run that was broken off."""
        while (left := until()) > 0:
            self.work(Label("", title, ""), left, self.plan.workers)

    def _orders(self, count: int, batch: int, payload_bytes: int) -> list[Submit]:
        clients = self.plan.clients
        connections = -(-self.plan.connections // clients)
        shares = [count // clients + (number < count % clients) for number in range(clients)]
        return [Submit(share, batch, connections, payload_bytes) for share in shares if share]

    def _spent_us(self, before: float | None, count: int) -> float | None:
        after = self.place.cpu_seconds()
        return None if before is None or after is None or not count else (after - before) * 1e6 / count


def _moments(worked: list[Worked]) -> Counter[int]:
    moments = Counter[int]()
    for each in worked:
        moments.update(each.moments)
    return moments


def _share(worked: list[Worked]) -> float | None:
    """Of the busiest, until its last task."""
    spans = [(each, max(each.moments) / 1000 - each.began) for each in worked if each.moments]
    return max((min(each.cpu_seconds / span, 1.0) for each, span in spans if span > 0), default=None)
