"""The steps that all measurements repeat: submitting tasks and processing them. Counts the run's live tasks."""

from collections import Counter
from collections.abc import Callable

import msgspec

from tideq.cli.benchmark.bars import Bars
from tideq.cli.benchmark.benched_service import BenchedService
from tideq.cli.benchmark.findings import Figure, seconds_until, times
from tideq.cli.benchmark.messages import BenchSubmitted, Pace, Submit, Worked
from tideq.cli.benchmark.plan import Plan
from tideq.cli.benchmark.processes import ProcessGroup


class Label(msgspec.Struct, frozen=True):
    """The name and the place of a figure in the tables."""

    name: str
    title: str
    group: str
    series: str = ""
    x: float | None = None


class Steps:
    def __init__(self, service: BenchedService, plan: Plan, processes: ProcessGroup, bars: Bars) -> None:
        self.service, self.plan = service, plan
        self._processes, self._bars = processes, bars
        self.submitted = self.processed = 0

    @property
    def left(self) -> int:
        return max(self.submitted - self.processed, 0)

    def submit(self, label: Label, count: int, batch: int, payload_bytes: int = 0) -> Figure:
        """Submits `count` tasks as fast as possible, from all submitting processes."""
        size = payload_bytes or self.plan.payload_bytes
        with self._bars.step(label.title, count) as advance:
            cpu = self.service.cpu_seconds()
            answers = self._processes.load(self._orders(count, batch, size), advance)
            cpu_us = self._spent_us(cpu, count)
        self.submitted += count
        seconds = max(each.ended for each in answers) - min(each.began for each in answers)
        durations_ms = [ms for each in answers for ms in each.answer_ms]
        return Figure(
            **msgspec.structs.asdict(label),
            tasks=count,
            seconds=seconds,
            per_second=count / seconds,
            payload_bytes=size,
            times=times(durations_ms) if batch == 1 else None,
            load_cpu_share=max(each.cpu_seconds for each in answers) / seconds,
            service_cpu_us=cpu_us,
        )

    def fill(self, depth: int, title: str) -> None:
        """Submits until `depth` tasks of the run are live; not measured."""
        if (missing := depth - self.left) > 0:
            self.submit(Label("", title, ""), missing, self.plan.batch_of(self.plan.payload_bytes))

    def work(self, label: Label, count: int, workers: int, payload_bytes: int = 0) -> Figure:
        """Processes `count` of the waiting tasks."""
        with self._bars.step(label.title, count) as advance:
            cpu = self.service.cpu_seconds()
            worked = self._processes.work(workers, count, advance)
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
        """Processes all tasks left; not measured."""
        if self.left:
            self.work(Label("", title, ""), self.left, self.plan.workers)

    def pace(self, title: str) -> tuple[BenchSubmitted, list[Worked], float | None]:
        """Submits tasks one by one at an even rate to waiting workers."""
        plan = self.plan
        order = Pace(max(round(plan.rate * plan.seconds), 1), plan.rate, plan.payload_bytes)
        with self._bars.step(title, order.count) as advance:
            cpu = self.service.cpu_seconds()
            (submitted,), worked = self._processes.work_beside(plan.workers, order, advance)
            cpu_us = self._spent_us(cpu, order.count)
        self.submitted += order.count
        self.processed += sum(each.count for each in worked)
        return submitted, worked, cpu_us

    def count_again(self) -> None:
        """Corrects the count after a refusal: the number of tasks accepted before it is unknown."""
        self.submitted = self.processed + self.service.backlog()

    def clear(self, until: Callable[[], int], title: str) -> None:
        """Processes the tasks of an interrupted run until `until` returns 0."""
        while (left := until()) > 0:
            self.work(Label("", title, ""), left, self.plan.workers)

    def _orders(self, count: int, batch: int, payload_bytes: int) -> list[Submit]:
        clients = self.plan.clients
        connections = -(-self.plan.connections // clients)
        shares = [count // clients + (number < count % clients) for number in range(clients)]
        return [Submit(share, batch, connections, payload_bytes) for share in shares if share]

    def _spent_us(self, before: float | None, count: int) -> float | None:
        after = self.service.cpu_seconds()
        return None if before is None or after is None or not count else (after - before) * 1e6 / count


def _moments(worked: list[Worked]) -> Counter[int]:
    moments = Counter[int]()
    for each in worked:
        moments.update(each.moments)
    return moments


def _share(worked: list[Worked]) -> float | None:
    """CPU share of the busiest worker process, until its last task."""
    spans = [(each, max(each.moments) / 1000 - each.began) for each in worked if each.moments]
    return max((min(each.cpu_seconds / span, 1.0) for each, span in spans if span > 0), default=None)
