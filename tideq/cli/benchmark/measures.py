"""The measurements of a run, one function for each kind, and the steps they share.

Each measurement leaves none of its tasks, except `enqueue`, whose tasks `process` completes.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.progress import Progress

from tideq.cli.benchmark.benched_service import BenchedService
from tideq.cli.benchmark.children import Pace, Submit, Worked
from tideq.cli.benchmark.figures import Figure, seconds_until, times
from tideq.cli.benchmark.plan import Plan
from tideq.cli.benchmark.processes import Advance, ProcessGroup
from tideq.client import InvalidRequest, TooManyRequests, Unavailable

WARM_UP_SHARE = 0.1
T = TypeVar("T")


class Steps:
    """Submits and processes tasks, and counts the run's live tasks."""

    def __init__(self, service: BenchedService, plan: Plan, processes: ProcessGroup, bars: Progress) -> None:
        self.plan = plan
        self.notes: list[str] = []
        self.submitted = self.processed = 0
        self._service, self._processes, self._bars = service, processes, bars

    @property
    def left(self) -> int:
        return max(self.submitted - self.processed, 0)

    def submit(
        self, name: str, title: str, count: int, batch: int, payload_bytes: int = 0, x: float | None = None
    ) -> Figure:
        """Submits `count` tasks as fast as possible, from all submitting processes."""
        size = payload_bytes or self.plan.payload_bytes
        orders = self._orders(count, batch, size)
        answers, cpu = self._measured(title, count, lambda advance: self._processes.load(orders, advance))
        self.submitted += count
        seconds = max(each.ended for each in answers) - min(each.began for each in answers)
        return Figure(
            name=name,
            title=title,
            group=name.partition(".")[0],
            x=x,
            tasks=count,
            seconds=seconds,
            per_second=count / seconds,
            payload_bytes=size,
            times=times([ms for each in answers for ms in each.answer_ms]) if batch == 1 else None,
            load_cpu_share=max(each.cpu_seconds for each in answers) / seconds,
            service_cpu_us=_us(cpu, count),
        )

    def work(
        self, name: str, title: str, count: int, workers: int, payload_bytes: int = 0, x: float | None = None
    ) -> Figure:
        """Processes `count` of the waiting tasks."""
        (worked, _), cpu = self._measured(title, count, lambda advance: self._processes.work(workers, count, advance))
        done = sum(each.count for each in worked)
        self.processed += done
        moments = sum((each.moments for each in worked), Counter[int]())
        seconds = seconds_until(count, min(each.began for each in worked), moments)
        return Figure(
            name=name,
            title=title,
            group=name.partition(".")[0],
            x=x,
            tasks=count,
            seconds=seconds,
            per_second=count / seconds,
            payload_bytes=payload_bytes or self.plan.payload_bytes,
            worker_cpu_share=_busiest(worked),
            service_cpu_us=_us(cpu, done),
        )

    def pace(self) -> list[Figure]:
        """Submits tasks one by one at an even rate to waiting workers."""
        plan = self.plan
        order = Pace(max(round(plan.rate * plan.seconds), 1), plan.rate, plan.payload_bytes)
        (worked, (submitted,)), cpu = self._measured(
            f"one by one at {plan.rate:g} a second",
            order.count,
            lambda advance: self._processes.work(plan.workers, order.count, advance, beside=order),
        )
        self.submitted += order.count
        self.processed += sum(each.count for each in worked)
        seconds = submitted.ended - submitted.began
        reached = (order.count - 1) / seconds if order.count > 1 else plan.rate
        if reached < 0.95 * plan.rate:
            self.notes.append(
                f"only {reached:.0f} of {plan.rate:g} tasks a second were submitted: the latencies show an overload"
            )
        kinds = {
            "submit": ("until the submission is answered", submitted.answer_ms),
            "pickup": ("until the handler's first line", [ms for each in worked for ms in _warm(each.pickup_ms)]),
            "round_trip": ("until the client has read the result", _warm(submitted.round_trip_ms)),
        }
        return [
            Figure(
                name=f"latency.{name}",
                title=title,
                group="latency",
                tasks=len(milliseconds),
                seconds=seconds,
                payload_bytes=plan.payload_bytes,
                times=times(milliseconds),
                load_cpu_share=submitted.cpu_seconds / seconds if seconds > 0 else None,
                service_cpu_us=_us(cpu, order.count),
            )
            for name, (title, milliseconds) in kinds.items()
        ]

    def fill(self, depth: int, title: str) -> None:
        """Submits until `depth` tasks of the run are live; not measured."""
        if (missing := depth - self.left) > 0:
            self.submit("", title, missing, self.plan.batch_of(self.plan.payload_bytes))

    def drain(self, title: str) -> None:
        """Processes all tasks left; not measured."""
        if self.left:
            self.work("", title, self.left, self.plan.workers)

    def count_again(self) -> None:
        """Corrects the count after a refusal: the number of tasks accepted before it is unknown."""
        self.submitted = self.processed + self._service.backlog()

    def _orders(self, count: int, batch: int, payload_bytes: int) -> list[Submit]:
        clients = self.plan.clients
        connections = -(-self.plan.connections // clients)
        shares = [count // clients + (number < count % clients) for number in range(clients)]
        return [Submit(share, batch, connections, payload_bytes) for share in shares if share]

    def _measured(self, title: str, count: int, step: Callable[[Advance], T]) -> tuple[T, float | None]:
        """Runs a step with a progress bar; also returns the CPU seconds of the service."""
        bar = self._bars.add_task(title, total=count)
        before = self._service.cpu_seconds()
        result = step(lambda done: self._bars.update(bar, completed=done))
        after = self._service.cpu_seconds()
        self._bars.update(bar, completed=count)
        self._bars.stop_task(bar)
        return result, None if before is None or after is None else after - before


def enqueue(steps: Steps) -> list[Figure]:
    plan = steps.plan
    single = steps.submit("enqueue.single", f"one by one, {plan.connections} connections", plan.part, 1)
    many = steps.submit("enqueue.batch", f"in batches of {plan.batch}", plan.tasks, plan.batch)
    if "process" not in plan.kinds:
        steps.drain("completing the submitted tasks")
    return [single, many]


def process(steps: Steps) -> list[Figure]:
    """Also completes the tasks that `enqueue` left."""
    plan = steps.plan
    steps.fill(plan.tasks, "filling the queue")
    title = f"{plan.workers} worker process{'es' if plan.workers > 1 else ''}, no-op handler"
    return [steps.work("process", title, steps.left, plan.workers)]


def depth(steps: Steps) -> list[Figure]:
    """At each depth, submits some tasks and completes as many."""
    found, plan = list[Figure](), steps.plan
    for wanted in plan.depths:
        part = min(plan.part, wanted)
        try:
            steps.fill(wanted - part, f"filling up to {wanted:,}")
            title = f"submitted at {wanted:,}"
            found.append(steps.submit(f"depth.enqueue.{wanted}", title, part, plan.batch, x=wanted))
        except (TooManyRequests, Unavailable) as error:
            steps.count_again()
            steps.notes.append(f"no depth above {steps.left:,} was measured: the service refused more tasks ({error})")
            break
        title = f"completed at {wanted:,}"
        found.append(steps.work(f"depth.process.{wanted}", title, part, plan.workers, x=wanted))
    steps.drain("emptying the queue")
    return found


def payload(steps: Steps) -> list[Figure]:
    found, plan = list[Figure](), steps.plan
    for size in plan.payloads:
        count, batch = plan.count_of(size), plan.batch_of(size)
        title = f"submitted, {size:,} bytes each"
        try:
            found.append(steps.submit(f"payload.enqueue.{size}", title, count, batch, size, x=size))
        except InvalidRequest as error:
            steps.count_again()
            steps.notes.append(f"no payloads of {size:,} bytes were measured: {error}")
            break
        title = f"completed, {size:,} bytes each"
        found.append(steps.work(f"payload.process.{size}", title, steps.left, plan.workers, size, x=size))
    return found


def workers(steps: Steps) -> list[Figure]:
    found = list[Figure]()
    for count in steps.plan.worker_counts:
        steps.fill(max(steps.plan.tasks // 2, 1), "filling the queue")
        title = f"{count} process{'es' if count > 1 else ''}"
        found.append(steps.work(f"workers.{count}", title, steps.left, count, x=count))
    return found


MEASURES: dict[str, Callable[[Steps], list[Figure]]] = {
    "enqueue": enqueue,
    "process": process,
    "latency": Steps.pace,
    "depth": depth,
    "payload": payload,
    "workers": workers,
}


def _us(cpu_seconds: float | None, count: int) -> float | None:
    return None if cpu_seconds is None or not count else cpu_seconds * 1e6 / count


def _warm(milliseconds: list[float]) -> list[float]:
    return milliseconds[int(len(milliseconds) * WARM_UP_SHARE) :]


def _busiest(worked: Sequence[Worked]) -> float | None:
    """CPU share of the busiest worker process, until its last task."""
    spans = [(each, max(each.moments) / 1000 - each.began) for each in worked if each.moments]
    return max((min(each.cpu_seconds / span, 1.0) for each, span in spans if span > 0), default=None)
