"""Metrics as Prometheus reads them: what the store counts of the queue, and what this process counts of itself.

Every process tells the same of the queue: take `max by` where several are scraped. Task types are the only text of
users in a label, and only the most frequent ones: the rest is told as `other`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from itertools import accumulate

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from tideq.api.meters import BOUNDS, Durations, Meters
from tideq.queue_core.engine.controls import WHOLE_QUEUE
from tideq.queue_core.engine.insight import Stats

MAX_TASK_TYPES = 200
OTHER = "other"


class Exposition:
    """What `generate_latest` asks for metrics."""

    def __init__(self, meters: Meters, stats: Stats | None, waiting_poll_count: int) -> None:
        self._meters = meters
        self._stats = stats
        self._waiting_poll_count = waiting_poll_count

    def text(self) -> bytes:
        return generate_latest(self)  # type: ignore[arg-type]

    def collect(self) -> Iterator[Metric]:
        yield _gauge("tideq_build_info", "Which version runs.", {version("tideq"): 1}, "version")
        yield _gauge("tideq_store_up", "Whether the store told of the queue.", int(self._stats is not None))
        if self._stats is not None:
            yield from _queue(self._stats)
            yield from _fleet(self._stats)
        yield from _process(self._meters, self._waiting_poll_count)
        yield from _consumed(self._meters.process)


def _queue(stats: Stats) -> Iterator[Metric]:
    ages = {str(share): stats.age_ms(share) / 1000 for share in (0.5, 0.95)}
    yield _gauge("tideq_queue_tasks", "Live tasks.", stats.by_state, "state")
    yield _gauge("tideq_queue_priority_tasks", "Waiting tasks of a priority.", stats.by_priority, "priority")
    yield _gauge("tideq_queue_type_tasks", "Waiting tasks of a type.", capped(stats.by_type), "task_type")
    yield _gauge("tideq_queue_oldest_age_seconds", "Age of the oldest waiting task.", stats.age_ms(1.0) / 1000)
    yield _gauge("tideq_queue_age_seconds", "Age that this share of the waiting tasks keeps within.", ages, "share")
    yield _gauge("tideq_queue_due_tasks", "Tasks that fell due and nobody has recovered yet.", stats.due_count)
    yield _gauge("tideq_dead_letters", "Tasks given up and kept.", stats.dead_letter_count)
    yield _gauge("tideq_outbox_entries", "Entries of the outbox, history's backlog among them.", stats.outbox_length)
    yield _gauge("tideq_queue_paused", "Whether the whole queue is paused.", int(_is_paused(stats, WHOLE_QUEUE)))
    yield _gauge("tideq_queue_type_paused", "Task types that are paused.", capped(_paused_types(stats)), "task_type")
    yield _gauge("tideq_last_minute_executions", "Executions that ended, by how.", _last_minute(stats), "outcome")
    yield _gauge("tideq_last_hour_recoveries", "What was brought back or given up, by why.", _last_hour(stats), "kind")


def _fleet(stats: Stats) -> Iterator[Metric]:
    workers = stats.workers
    states = {state: getattr(workers, state) for state in ("active", "draining", "unhealthy", "dead")}
    slots = {"used": workers.used_capacity, "total": workers.total_capacity}
    yield _gauge("tideq_workers", "Workers, those that died within the hour included.", states, "state")
    yield _gauge("tideq_worker_slots", "Tasks the fleet holds, and could hold.", slots, "kind")


def _process(meters: Meters, waiting_poll_count: int) -> Iterator[Metric]:
    yield from _requests(meters)
    claims = HistogramMetricFamily("tideq_claim_duration_seconds", "The store's answer to a claim.", labels=["process"])
    _add(claims, [meters.process], meters.claims)
    yield claims
    of_process = [meters.process]
    for name, meaning, count in (
        ("tideq_tasks_submitted", "Tasks taken, repeated submissions not counted.", meters.submitted_count),
        ("tideq_tasks_claimed", "Tasks claimed for workers.", meters.claimed_count),
        ("tideq_undelivered_answers", "Answers with tasks that reached nobody.", meters.undelivered_count),
        ("tideq_event_listeners_cut_off", "Listeners that did not keep up.", meters.cut_off_count),
    ):
        family = CounterMetricFamily(name, meaning, labels=["process"])
        family.add_metric(of_process, count)
        yield family
    yield _gauge("tideq_waiting_polls", "Polls that wait for work.", {meters.process: waiting_poll_count}, "process")
    yield _gauge("tideq_event_listeners", "Open event streams.", {meters.process: meters.listener_count}, "process")


def _requests(meters: Meters) -> Iterator[Metric]:
    requests = CounterMetricFamily("tideq_http_requests", "Requests.", labels=["process", "route", "method", "status"])
    by_route: defaultdict[str, Durations] = defaultdict(Durations)
    for (route, method, hundreds), noted in meters.requests.items():
        requests.add_metric([meters.process, route, method, f"{hundreds}xx"], sum(noted.counts))
        by_route[route].add(noted)
    yield requests
    durations = HistogramMetricFamily(
        "tideq_http_request_duration_seconds", "From routing to the last byte.", labels=["process", "route"]
    )
    for route, noted in by_route.items():
        _add(durations, [meters.process, route], noted)
    yield durations


def _consumed(process: str) -> Iterator[Metric]:
    """Time, memory and open files of this process, where the system tells."""
    for family in ProcessCollector(namespace="tideq", registry=None).collect():
        family.samples = [sample._replace(labels={"process": process}) for sample in family.samples]
        yield family


def capped(counts: Mapping[str, int]) -> dict[str, int]:
    """The most frequent types by name, the rest together. A type that is called `other` is counted with them."""
    kept: Counter[str] = Counter()
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    for place, (name, count) in enumerate(ranked):
        kept[name if place < MAX_TASK_TYPES else OTHER] += count
    return dict(kept)


def _is_paused(stats: Stats, scope: str) -> bool:
    control = stats.controls.get(scope)
    return control is not None and control.pause is not None


def _paused_types(stats: Stats) -> dict[str, int]:
    return {scope: 1 for scope in stats.controls if scope != WHOLE_QUEUE and _is_paused(stats, scope)}


def _last_minute(stats: Stats) -> dict[str, int]:
    return {outcome: stats.recent.get(outcome, 0) for outcome in ("completed", "failed")}


def _last_hour(stats: Stats) -> dict[str, int]:
    kinds = ("assignment_timeouts", "execution_timeouts", "worker_losses", "retries", "dead_letters", "workers_lost")
    return {kind: stats.recent.get(kind, 0) for kind in kinds}


def _gauge(name: str, meaning: str, value: float | Mapping[str, float], label: str = "") -> Metric:
    if not isinstance(value, Mapping):
        return GaugeMetricFamily(name, meaning, value=value)
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for labelled, number in value.items():
        family.add_metric([labelled], number)
    return family


def _add(family: HistogramMetricFamily, labels: list[str], noted: Durations) -> None:
    bounds = [*map(str, BOUNDS), "+Inf"]
    buckets = list(zip(bounds, accumulate(noted.counts), strict=True))
    family.add_metric(labels, buckets=buckets, sum_value=noted.total_seconds)
