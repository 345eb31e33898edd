"""Statistics, pauses and limits of the queue, and the responses of probes."""

from typing import Annotated

import msgspec

from tideq.api.schemas.base import CheckedName, Count, Instant, RequestSchema, ResponseSchema, about
from tideq.api.schemas.times import InstantIn

OneType = Annotated[CheckedName, about("A task type; the whole queue if left out or null.", "resize")]
Age = Annotated[float, about("Seconds since the tasks could first run, exact to half a minute; 0 if none waits.", 12.5)]


class PauseIn(RequestSchema, kw_only=True):
    """A pause of the queue or of one task type."""

    task_type: OneType | None = None
    reason: Annotated[
        str, msgspec.Meta(max_length=200), about("Shown in lists and explanations.", "upstream is down")
    ] = ""
    resume_at: Annotated[InstantIn, about("When the pause ends by itself.", "2026-03-02T12:00:00Z")] | None = None


class ResumeIn(RequestSchema, kw_only=True):
    """The end of a pause."""

    task_type: OneType | None = None


class PauseOut(ResponseSchema, kw_only=True):
    """The state of the pause."""

    paused: Annotated[bool, about("No tasks are handed out.", True)]


class LimitsIn(RequestSchema, kw_only=True):
    """Both limits; a limit left out is removed."""

    task_type: OneType | None = None
    tasks_per_second: Annotated[
        float, msgspec.Meta(ge=0, le=1e6), about("Most claims per second; 0 for no limit.", 10)
    ] = 0
    max_executing: (
        Annotated[int, msgspec.Meta(ge=0, le=10**9), about("Most tasks at once, assigned or executing.", 50)] | None
    ) = None


class LimitOut(ResponseSchema, kw_only=True):
    """The pause and limits of one type or, with a null type, of the whole queue."""

    task_type: Annotated[str | None, about("Task type; null for the whole queue.", "resize")]
    paused: Annotated[bool, about("No tasks are handed out.", False)]
    reason: Annotated[str | None, about("Reason of the pause.", None)]
    paused_by: Annotated[str | None, about("Name of the key that paused it.", None)]
    resume_at: Annotated[Instant | None, about("When the pause ends by itself.", None)]
    tasks_per_second: Annotated[float, about("Most claims per second; 0 for no limit.", 10.0)]
    max_executing: Annotated[int | None, about("Most tasks at once; null for no limit.", 50)]


class LimitsOut(ResponseSchema, kw_only=True):
    """One entry for each pause or limit."""

    limits: list[LimitOut]


class TotalsOut(ResponseSchema, kw_only=True):
    """Ended tasks by their last state. Purged tasks are not counted; tasks dropped from history by age are."""

    completed: Annotated[Count, about("Tasks with a result.", 1_205)]
    failed: Annotated[Count, about("Tasks with an error that was not retriable.", 15)]
    cancelled: Annotated[Count, about("Cancelled tasks.", 2)]
    dead_letter: Annotated[Count, about("Dead letters; a replay subtracts one.", 3)]
    since: Annotated[
        Instant | None,
        about("Start of the count; null if the counts are checked against history, which has all tasks.", None),
    ]


class DepthOut(ResponseSchema, kw_only=True):
    """Waiting tasks, ready or hidden, and ended ones."""

    total_depth: Annotated[Count, about("Tasks waiting.", 120)]
    by_priority: Annotated[dict[str, int], about("Waiting tasks by priority.", {"high": 20, "medium": 100, "low": 0})]
    by_type: Annotated[dict[str, int], about("Waiting tasks by type.", {"resize": 120})]
    by_state: Annotated[dict[str, int], about("Live tasks by state.", {"queued": 120, "assigned": 1, "executing": 8})]
    by_type_and_state: Annotated[
        dict[str, dict[str, int]],
        about(
            "Tasks by type and state: live ones, and ended ones as in `totals`. Of more than 200 types, those with the "
            "fewest live tasks, then the rarest, are summed as `other`.",
            {
                "resize": {
                    "queued": 120,
                    "assigned": 1,
                    "executing": 8,
                    "completed": 1_205,
                    "failed": 15,
                    "cancelled": 2,
                    "dead_letter": 3,
                }
            },
        ),
    ]
    totals: TotalsOut
    oldest_age_by_priority: Annotated[
        dict[str, float],
        about(
            "Seconds since the oldest task could first run, exact to half a minute; 0 if none waits.",
            {"high": 12.5, "low": 0.0},
        ),
    ]
    oldest_age_seconds: Age
    p50_age_seconds: Age
    p95_age_seconds: Age


class FleetOut(ResponseSchema, kw_only=True):
    """Workers by their state."""

    active: Annotated[Count, about("Workers that get tasks.", 4)]
    draining: Annotated[Count, about("Workers that finish the tasks they hold.", 1)]
    unhealthy: Annotated[Count, about("Workers whose probes failed, or that reported it themselves.")]
    dead: Annotated[Count, about("Workers whose heartbeat timed out in the last hour.")]
    total_capacity: Annotated[Count, about("Tasks that the workers can hold.", 20)]
    used_capacity: Annotated[Count, about("Tasks that the workers hold.", 9)]
    open_circuits: Annotated[Count, about("Circuits that are open or on trial because of too many failures.")]
    open_circuits_by_type: Annotated[
        dict[str, int], about("The same by task type; `*` for circuits of whole workers.", {"resize": 1})
    ]


class ThroughputOut(ResponseSchema, kw_only=True):
    """Completions and failures of the last minute."""

    completed_last_minute: Annotated[Count, about("Results received.", 512)]
    failed_last_minute: Annotated[Count, about("Errors received.", 3)]
    avg_task_duration_seconds: Annotated[float | None, about("Mean time from start to result; null if none.", 0.84)]


class RecoveryOut(ResponseSchema, kw_only=True):
    """Recoveries of the last hour."""

    assignment_timeouts_last_hour: Annotated[Count, about("Claimed tasks not started in time.")]
    execution_timeouts_last_hour: Annotated[Count, about("Executions that passed their deadline.")]
    visibility_timeouts_last_hour: Annotated[Count, about("Sum of the two above.")]
    health_probe_failures_last_hour: Annotated[Count, about("Failed probes of workers.")]
    worker_losses_last_hour: Annotated[Count, about("Executions whose worker died.")]
    retries_last_hour: Annotated[Count, about("Retries.", 7)]
    dead_letters_last_hour: Annotated[Count, about("New dead letters.")]


class StatsOut(ResponseSchema, kw_only=True):
    """The queue at a glance."""

    queue: DepthOut
    workers: FleetOut
    throughput: ThroughputOut
    recovery_stats: RecoveryOut
    dead_letters: Annotated[Count, about("Stored dead letters.", 2)]
    outbox_length: Annotated[Count, about("Transitions not yet in history.", 40)]
    due: Annotated[Count, about("Hidden tasks whose time has come and that are not swept yet.")]


class BacklogOut(ResponseSchema, kw_only=True):
    """The values for an autoscaler."""

    ready: Annotated[Count, about("Tasks that could be claimed now.", 120)]
    executing: Annotated[Count, about("Tasks assigned or executing.", 8)]
    backlog: Annotated[Count, about("Sum of both: scaling by `ready` alone would stop busy workers.", 128)]


class StaleDutyOut(ResponseSchema, kw_only=True):
    """A background duty of this process that does not succeed; the reason is in its log."""

    duty: Annotated[str, about("Name of the duty; docs/runbook.md lists the consequences.", "sweep")]
    seconds: Annotated[float, about("Time since its last success.", 62.5)]


class StaleElsewhereOut(ResponseSchema, kw_only=True):
    """A background duty that does not succeed in another process, or that lost its only process."""

    duty: Annotated[str, about("Name of the duty.", "prune")]
    process: Annotated[str, about("Host and process id; the reason is in its log.", "monitor-7c9f:1")]
    seconds: Annotated[float, about("Time since its last success, or since the last report of that process.", 62.5)]


class ReadyOut(ResponseSchema, kw_only=True):
    """The process accepts requests, also with stale background duties."""

    status: Annotated[str, about("Always `ready`.", "ready", enum=["ready"])]
    stale_duties: Annotated[
        tuple[StaleDutyOut, ...],
        about("Background duties of this process whose last success is too long ago."),
    ]
    stale_elsewhere: Annotated[
        tuple[StaleElsewhereOut, ...],
        about("Stale duties of other processes on this queue that reported within the last hour."),
    ] = ()


class HealthOut(ResponseSchema, kw_only=True):
    """The process is alive."""

    status: Annotated[str, about("Always `alive`.", "alive", enum=["alive"])]
