"""Samples of the queue, its store and its history: a few calls whose cost does not grow with the queue."""

from collections.abc import Iterable, Mapping
from importlib.metadata import version

from tideq.api.service import Service
from tideq.persistence.read.status import HistoryStatus
from tideq.queue_core.controls import WHOLE_QUEUE
from tideq.queue_core.errors import QueueError, StoreReplaced
from tideq.queue_core.partition_views import Stats
from tideq.queue_core.samples import OTHER, Labels, Sample, SampleHistogram, Samples, TypeNames, merged
from tideq.queue_core.settings import Priority
from tideq.queue_core.store.ended_tasks import OTHERS
from tideq.queue_core.store.memory import Memory, read_memory
from tideq.queue_core.transitions import TERMINAL

SHARES = (0.5, 0.95, 0.99)
SCORE_STEPS_SECONDS = (86_400, 21_600, 3_600, 600, 60, 0)
"""Seconds below each priority's offset: a score falls by one a second, starting from the offset."""
WORKER_STATES = ("active", "draining", "unhealthy", "dead")
RECOVERIES = ("assignment_timeouts", "execution_timeouts", "worker_losses", "retries", "dead_letters", "workers_lost")
TOTALS: dict[str, tuple[str, ...]] = {
    "tideq_task_assignment_timeouts_total": ("assignment_timeouts",),
    "tideq_task_execution_timeouts_total": ("execution_timeouts",),
    "tideq_task_visibility_timeouts_total": ("assignment_timeouts", "execution_timeouts"),
    "tideq_task_worker_losses_total": ("worker_losses",),
    "tideq_worker_heartbeat_failures_total": ("workers_lost",),
    "tideq_tasks_dead_lettered_total": ("dead_letters",),
    "tideq_tasks_retried_total": ("retries",),
    "tideq_circuits_opened_total": ("circuits_opened",),
    "tideq_tasks_set_aside_total": ("unreadable",),
}
WORKER_FAILURES = {
    "heartbeat_missed": "workers_lost",
    "probe_failed": "probe_failed",
    "unhealthy_by_itself": "unhealthy_by_itself",
}


async def all_samples(service: Service) -> Samples:
    """Samples of the store, of this process and of the other processes on its port."""
    others = await service.other_processes.samples()
    return merged([await queue_samples(service), *others, service.samples()])


async def queue_samples(service: Service) -> Samples:
    """Reports a store that does not answer as down; never raises for it."""
    about = {"tideq_build_info": _of({version("tideq"): 1})}
    try:
        found = await _store_samples(service)
    except QueueError as error:
        is_replaced = isinstance(error, StoreReplaced)
        return {**about, **_one(tideq_store_up=0, tideq_store_unverified=int(is_replaced or _is_unverified(service)))}
    return {**about, **_one(tideq_store_up=1, tideq_store_unverified=int(_is_unverified(service))), **found}


async def _store_samples(service: Service) -> Samples:
    stats = await service.engine.insight.stats()
    memory = await read_memory(service.client)
    epoch, queue = service.engine.scripts.epoch, service.settings.queue
    return {
        **_queue(stats, queue.priorities, service.metrics.types),
        **_fleet(stats, service.metrics.types),
        **_totals(stats),
        **_memory(memory),
        **_one(tideq_store_epoch=int(epoch or 0), tideq_outbox_limit_entries=queue.admission.max_outbox_entries),
        **(_history(await service.status_reader.read(stats.now_ms)) if service.status_reader else {}),
    }


def _queue(stats: Stats, priorities: Mapping[str, Priority], types: TypeNames) -> Samples:
    outcomes = {outcome: stats.recent.get(outcome, 0) for outcome in ("completed", "failed")}
    by_priority = dict.fromkeys(priorities, 0) | stats.by_priority
    recoveries = {kind: stats.recent.get(kind, 0) for kind in RECOVERIES}
    paused = [(scope, 1) for scope in stats.controls if scope != WHOLE_QUEUE and _is_paused(stats, scope)]
    return {
        "tideq_queue_tasks": _of(stats.by_state),
        "tideq_queue_priority_tasks": _of(by_priority),
        "tideq_queue_type_tasks": types.summed(stats.by_type.items()),
        "tideq_queue_oldest_age_seconds": _of({level: stats.age_ms(1.0, level) / 1000 for level in by_priority}),
        "tideq_ended_tasks": _ended(stats, types),
        "tideq_queue_age_seconds": _ages(stats, by_priority),
        "tideq_queue_score_seconds": {(): _scores(stats, priorities)},
        "tideq_queue_type_paused": types.summed(paused),
        "tideq_last_minute_executions": _of(outcomes),
        "tideq_last_hour_recoveries": _of(recoveries),
        **_one(
            tideq_queue_ready_tasks=stats.ready_count,
            tideq_queue_due_tasks=stats.due_count,
            tideq_queue_paused=int(_is_paused(stats, WHOLE_QUEUE)),
            tideq_dead_letters=stats.dead_letter_count,
            tideq_unreadable_tasks=stats.unreadable_count,
            tideq_clock_ahead_seconds=stats.clock_ahead_ms / 1000,
            tideq_outbox_entries=stats.outbox_length,
        ),
    }


def _ended(stats: Stats, types: TypeNames) -> dict[Labels, Sample]:
    ended: dict[Labels, Sample] = {}
    for state in sorted(TERMINAL):
        of_state = [
            (OTHER if each == OTHERS else each, count)
            for (each, its), count in stats.counted.items()
            if its == state and count > 0
        ]
        ended |= {(*label, state): count for label, count in types.summed(of_state).items()}
    return ended


def _ages(stats: Stats, priorities: Iterable[str]) -> dict[Labels, Sample]:
    return {(level, str(share)): stats.age_ms(share, level) / 1000 for level in priorities for share in SHARES}


def _scores(stats: Stats, priorities: Mapping[str, Priority]) -> SampleHistogram:
    """As exact as the ages: to half a minute, counted from the end of a backoff, without head starts."""
    offsets = {level: priority.offset_ms / 1000 for level, priority in priorities.items()}
    bounds = sorted({offset - step for offset in offsets.values() for step in SCORE_STEPS_SECONDS})
    scores = SampleHistogram(bounds)
    for (level, minute_ms), count in stats.ages.items():
        scores.note(offsets.get(level, 0.0) - max(stats.now_ms - minute_ms - 30_000, 0) / 1000, count)
    return scores


def _fleet(stats: Stats, types: TypeNames) -> Samples:
    workers = stats.workers
    used, total = workers.used_capacity, workers.total_capacity
    return {
        "tideq_workers": _of({state: getattr(workers, state) for state in WORKER_STATES}),
        "tideq_worker_slots": _of({"used": used, "total": total}),
        **_one(tideq_worker_capacity_used_ratio=used / total if total else 0.0),
        **_one(tideq_open_circuits=workers.open_circuits),
        "tideq_type_open_circuits": types.summed(workers.open_circuits_by_type.items()),
    }


def _totals(stats: Stats) -> Samples:
    failures = {reason: stats.totals.get(kind, 0) for reason, kind in WORKER_FAILURES.items()}
    return {
        **_one(**{metric: sum(stats.totals.get(kind, 0) for kind in kinds) for metric, kinds in TOTALS.items()}),
        "tideq_worker_failures_total": _of(failures),
    }


def _memory(memory: Memory) -> Samples:
    return _one(
        tideq_store_memory_used_bytes=memory.used_bytes,
        tideq_store_memory_limit_bytes=memory.limit_bytes,
    )


def _history(status: HistoryStatus) -> Samples:
    values = {
        "tideq_history_up": int(status.is_up),
        "tideq_history_lag_seconds": None if status.lag_ms is None else status.lag_ms / 1000,
        "tideq_history_epoch": status.epoch,
        "tideq_history_parked_events": status.parked_count,
    }
    return _one(**{metric: value for metric, value in values.items() if value is not None})


def _is_unverified(service: Service) -> bool:
    guard = service.store.guard
    return guard is not None and guard.is_unverified


def _is_paused(stats: Stats, scope: str) -> bool:
    control = stats.controls.get(scope)
    return control is not None and control.pause is not None


def _of(values: Mapping[str, float]) -> dict[Labels, Sample]:
    return {(label,): value for label, value in values.items()}


def _one(**values: float) -> Samples:
    return {metric: {(): value} for metric, value in values.items()}
