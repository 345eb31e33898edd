"""The measurements of a run, one function for each kind. Each one leaves the lane empty, except `enqueue`."""

from collections.abc import Callable

from tideq.cli.benchmark.findings import Figure, times
from tideq.cli.benchmark.messages import BenchSubmitted, Worked
from tideq.cli.benchmark.steps import Label, Steps
from tideq.client import InvalidRequest, TooManyRequests, Unavailable

WARM_UP_SHARE = 0.1
Note = Callable[[str], None]


def enqueue(steps: Steps, _note: Note) -> list[Figure]:
    plan = steps.plan
    single = Label("enqueue.single", f"one by one, {plan.connections} connections", "enqueue", "one by one")
    many = Label("enqueue.batch", f"in batches of {plan.batch}", "enqueue", "batches")
    found = [steps.submit(single, plan.part, 1), steps.submit(many, plan.tasks, plan.batch)]
    if "process" not in plan.kinds:
        steps.drain("completing the submitted tasks")
    return found


def process(steps: Steps, _note: Note) -> list[Figure]:
    """Also completes the tasks that `enqueue` left."""
    plan = steps.plan
    steps.fill(plan.tasks, "filling the queue")
    title = f"{plan.workers} worker process{'es' if plan.workers > 1 else ''}, no-op handler"
    return [steps.work(Label("process", title, "process", "workers"), steps.left, plan.workers)]


def latency(steps: Steps, note: Note) -> list[Figure]:
    submitted, worked, cpu_us = steps.pace(f"one by one at {steps.plan.rate:g} a second")
    seconds = submitted.ended - submitted.began
    reached = (submitted.count - 1) / seconds if submitted.count > 1 else steps.plan.rate
    if reached < 0.95 * steps.plan.rate:
        note(f"only {reached:.0f} of {steps.plan.rate:g} tasks a second were submitted: the latencies show an overload")
    kinds = {
        "submit": ("until the submission is answered", submitted.answer_ms),
        "pickup": ("until the handler's first line", _pickups(worked)),
        "round_trip": ("until the client has read the result", _warm(submitted.round_trip_ms)),
    }
    return [
        Figure(
            name=f"latency.{name}",
            title=title,
            group="latency",
            series=title,
            tasks=len(milliseconds),
            seconds=seconds,
            payload_bytes=steps.plan.payload_bytes,
            times=times(milliseconds),
            load_cpu_share=_load_share(submitted, seconds),
            service_cpu_us=cpu_us,
        )
        for name, (title, milliseconds) in kinds.items()
    ]


def depth(steps: Steps, note: Note) -> list[Figure]:
    """At each depth, submits some tasks and completes as many."""
    found = list[Figure]()
    for wanted in steps.plan.depths:
        part = min(steps.plan.part, wanted)
        try:
            steps.fill(wanted - part, f"filling up to {wanted:,}")
            label = Label(f"depth.enqueue.{wanted}", f"submitted at {wanted:,}", "depth", "submitted", wanted)
            found.append(steps.submit(label, part, steps.plan.batch))
        except (TooManyRequests, Unavailable) as error:
            steps.count_again()
            note(f"no depth above {steps.left:,} was measured: the service refused more tasks ({error})")
            break
        label = Label(f"depth.process.{wanted}", f"completed at {wanted:,}", "depth", "completed", wanted)
        found.append(steps.work(label, part, steps.plan.workers))
    steps.drain("emptying the queue")
    return found


def payload(steps: Steps, note: Note) -> list[Figure]:
    found = list[Figure]()
    for size in steps.plan.payloads:
        count, batch = steps.plan.count_of(size), steps.plan.batch_of(size)
        label = Label(f"payload.enqueue.{size}", f"submitted, {size:,} bytes each", "payload", "submitted", size)
        try:
            found.append(steps.submit(label, count, batch, size))
        except InvalidRequest as error:
            steps.count_again()
            note(f"no payloads of {size:,} bytes were measured: {error}")
            break
        label = Label(f"payload.process.{size}", f"completed, {size:,} bytes each", "payload", "completed", size)
        found.append(steps.work(label, steps.left, steps.plan.workers, size))
    return found


def workers(steps: Steps, _note: Note) -> list[Figure]:
    found = list[Figure]()
    for count in steps.plan.worker_counts:
        steps.fill(max(steps.plan.tasks // 2, 1), "filling the queue")
        title = f"{count} process{'es' if count > 1 else ''}"
        found.append(steps.work(Label(f"workers.{count}", title, "workers", "completed", count), steps.left, count))
    return found


MEASURES: dict[str, Callable[[Steps, Note], list[Figure]]] = {
    "enqueue": enqueue,
    "process": process,
    "latency": latency,
    "depth": depth,
    "payload": payload,
    "workers": workers,
}


def _pickups(worked: list[Worked]) -> list[float]:
    return [ms for each in worked for ms in _warm(each.pickup_ms)]


def _warm(milliseconds: list[float]) -> list[float]:
    return milliseconds[int(len(milliseconds) * WARM_UP_SHARE) :]


def _load_share(submitted: BenchSubmitted, seconds: float) -> float | None:
    return submitted.cpu_seconds / seconds if seconds > 0 else None
