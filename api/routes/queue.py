"""The queue as a whole: statistics, pauses, limits."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router, get, post, put
from litestar.params import QueryParameter

from tideq.api.edge.auth import Caller
from tideq.api.edge.body import decode
from tideq.api.edge.responses import json_response
from tideq.api.operations import operation
from tideq.api.schemas.base import Name
from tideq.api.schemas.queue import (
    BacklogOut,
    DepthOut,
    FleetOut,
    LimitOut,
    LimitsIn,
    LimitsOut,
    PauseIn,
    PauseOut,
    RecoveryOut,
    ResumeIn,
    StatsOut,
    ThroughputOut,
    TotalsOut,
)
from tideq.api.schemas.times import instant_ms, maybe_rfc3339
from tideq.api.service import InjectedService
from tideq.queue_core.controls import WHOLE_QUEUE, Control
from tideq.queue_core.inspector import Stats
from tideq.queue_core.transitions import TERMINAL

Http = Request[Caller, Any, Any]
OfTypes = Annotated[
    list[Name] | None,
    QueryParameter(name="task_type", description="A task type that the worker handles; may be repeated."),
]
WithCapabilities = Annotated[
    list[Name] | None,
    QueryParameter(name="capability", description="A capability that the worker has; may be repeated."),
]
VISIBILITY_TIMEOUTS = ("assignment_timeouts", "execution_timeouts")
RECOVERIES = (*VISIBILITY_TIMEOUTS, "health_probe_failures", "worker_losses", "retries", "dead_letters")


@get("/stats", opt=operation("viewer", "producer", answer=StatsOut))
async def stats(service: InjectedService) -> Response[bytes]:
    """Read depth, ages, workers, throughput and recoveries. The cost does not depend on the depth."""
    return json_response(_stats_out(await service.engine.insight.stats(), service.settings.queue.priorities))


@get("/autoscale", opt=operation("viewer", answer=BacklogOut))
async def autoscale(
    service: InjectedService, task_types: OfTypes = None, capabilities: WithCapabilities = None
) -> Response[bytes]:
    """Read the backlog for an autoscaler, of all tasks or of those that such a worker could claim. The cost does not
    depend on the depth.
    """
    backlog = await service.engine.insight.backlog(task_types or (), capabilities or ())
    answer = BacklogOut(ready=backlog.ready, executing=backlog.held, backlog=backlog.ready + backlog.held)
    return json_response(answer)


@post("/pause", status_code=200, opt=operation("admin", body=PauseIn, needs_body=False, answer=PauseOut))
async def pause(request: Http, service: InjectedService) -> Response[bytes]:
    """Pause the queue or one task type. No more tasks are handed out; tasks already claimed go on."""
    body = decode(await request.body() or b"{}", PauseIn)
    resume_at_ms = None if body.resume_at is None else instant_ms(body.resume_at)
    await service.engine.controls.pause(
        body.task_type, reason=body.reason, by=request.user.name, resume_at_ms=resume_at_ms
    )
    await service.audit.note(request.user.name, "pause", body.task_type or "", _pause_in_words(body))
    return json_response(PauseOut(paused=True))


@post("/resume", status_code=200, opt=operation("admin", body=ResumeIn, needs_body=False, answer=PauseOut))
async def resume(request: Http, service: InjectedService) -> Response[bytes]:
    """End a pause."""
    body = decode(await request.body() or b"{}", ResumeIn)
    await service.engine.controls.resume(body.task_type)
    await service.audit.note(request.user.name, "resume", body.task_type or "")
    return json_response(PauseOut(paused=False))


@get("/limits", opt=operation("viewer", answer=LimitsOut))
async def limits(service: InjectedService) -> Response[bytes]:
    """List the current pauses and limits."""
    controls = (await service.engine.insight.stats()).controls
    return json_response(LimitsOut(limits=[_control_out(control) for control in controls.values()]))


@put("/limits", opt=operation("admin", body=LimitsIn, answer=LimitsOut))
async def limit(request: Http, service: InjectedService) -> Response[bytes]:
    """Set both limits of the queue or of one task type."""
    body = decode(await request.body(), LimitsIn)
    await service.engine.controls.limit(
        body.task_type, tasks_per_second=body.tasks_per_second, max_executing=body.max_executing
    )
    await service.audit.note(request.user.name, "limit", body.task_type or "", _limit_in_words(body))
    return await limits.fn(service)


def _pause_in_words(body: PauseIn) -> str:
    until = f"until {body.resume_at.isoformat(timespec='seconds')}" if body.resume_at else ""
    return ", ".join(filter(None, (body.reason, until)))


def _limit_in_words(body: LimitsIn) -> str:
    rate = f"{body.tasks_per_second:g} tasks a second" if body.tasks_per_second else "any rate"
    most = "any number" if body.max_executing is None else f"{body.max_executing}"
    return f"{rate}, {most} at once"


def _control_out(control: Control) -> LimitOut:
    pause = control.pause
    return LimitOut(
        task_type=None if control.scope == WHOLE_QUEUE else control.scope,
        paused=pause is not None,
        reason=pause.reason if pause else None,
        paused_by=pause.by if pause else None,
        resume_at=maybe_rfc3339(pause.resume_at_ms) if pause else None,
        tasks_per_second=control.limits.tasks_per_second or 0,
        max_executing=control.limits.max_executing,
    )


def _stats_out(stats: Stats, priorities: Iterable[str]) -> StatsOut:
    recent, completed = stats.recent, stats.recent.get("completed", 0)
    by_priority = dict.fromkeys(priorities, 0) | stats.by_priority
    return StatsOut(
        queue=DepthOut(
            total_depth=stats.total_depth,
            by_priority=by_priority,
            by_type=stats.by_type,
            by_state=stats.by_state,
            by_type_and_state=stats.by_type_and_state,
            totals=_totals_out(stats),
            oldest_age_by_priority={level: stats.age_ms(1.0, level) / 1000 for level in by_priority},
            oldest_age_seconds=stats.age_ms(1.0) / 1000,
            p50_age_seconds=stats.age_ms(0.5) / 1000,
            p95_age_seconds=stats.age_ms(0.95) / 1000,
        ),
        workers=FleetOut(**msgspec.structs.asdict(stats.workers)),
        throughput=ThroughputOut(
            completed_last_minute=completed,
            failed_last_minute=recent.get("failed", 0),
            avg_task_duration_seconds=recent.get("duration_ms", 0) / 1000 / completed if completed else None,
        ),
        recovery_stats=RecoveryOut(
            **{f"{name}_last_hour": recent.get(name, 0) for name in RECOVERIES},
            visibility_timeouts_last_hour=sum(recent.get(name, 0) for name in VISIBILITY_TIMEOUTS),
        ),
        dead_letters=stats.dead_letter_count,
        outbox_length=stats.outbox_length,
        due=stats.due_count,
    )


def _totals_out(stats: Stats) -> TotalsOut:
    return TotalsOut(
        **{state: stats.ended_count(state) for state in TERMINAL},
        since=maybe_rfc3339(stats.counted_since_ms),
    )


router = Router("/api/v1/queue", route_handlers=[stats, autoscale, pause, resume, limits, limit])
