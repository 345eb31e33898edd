"""The queue as a whole."""

from typing import Annotated

import msgspec

from tideq.api.schemas.base import Answer, CheckedName, Count, Instant, Request, about
from tideq.api.schemas.times import InstantIn

OneType = Annotated[CheckedName, about("One task type; left out or null, the whole queue.", "resize")]
Age = Annotated[float, about("From when a task may run, to half a minute; 0 where nothing waits.", 12.5)]


class PauseIn(Request, kw_only=True):
    """What shall not be handed out, why, and until when."""

    task_type: OneType | None = None
    reason: Annotated[str, msgspec.Meta(max_length=200), about("Shown to whoever looks.", "upstream is down")] = ""
    resume_at: Annotated[InstantIn, about("Resumes by itself then.", "2026-03-02T12:00:00Z")] | None = None


class ResumeIn(Request, kw_only=True):
    """What shall be handed out again."""

    task_type: OneType | None = None


class PauseOut(Answer, kw_only=True):
    """How it is now."""

    paused: Annotated[bool, about("Nothing is handed out.", True)]


class LimitsIn(Request, kw_only=True):
    """Both limits at once: what is left out is no limit."""

    task_type: OneType | None = None
    tasks_per_second: Annotated[float, msgspec.Meta(ge=0, le=1e6), about("0 is no limit.", 10)] = 0
    max_executing: (
        Annotated[int, msgspec.Meta(ge=0, le=10**9), about("Most at once, assigned or executing.", 50)] | None
    ) = None


class LimitOut(Answer, kw_only=True):
    """What is in force for one type or, with a null type, for the whole queue."""

    task_type: Annotated[str | None, about("Null for the whole queue.", "resize")]
    paused: Annotated[bool, about("Nothing is handed out.", False)]
    reason: Annotated[str | None, about("Why it is paused.", None)]
    paused_by: Annotated[str | None, about("Whose key paused it.", None)]
    resume_at: Annotated[Instant | None, about("When it resumes by itself.", None)]
    tasks_per_second: Annotated[float, about("0 is no limit.", 10.0)]
    max_executing: Annotated[int | None, about("Most at once; null is no limit.", 50)]


class LimitsOut(Answer, kw_only=True):
    """One entry for everything that is paused or limited."""

    limits: list[LimitOut]


class TotalsOut(Answer, kw_only=True):
    """Tasks that ended, by how they ended last: less what was purged, and with what history's age pruning dropped."""

    completed: Annotated[Count, about("Tasks with a result.", 1_205)]
    failed: Annotated[Count, about("Tasks that failed for good.", 15)]
    cancelled: Annotated[Count, about("Tasks called off.", 2)]
    dead_letter: Annotated[Count, about("Tasks given up; a replay takes one away.", 3)]
    since: Annotated[
        Instant | None,
        about("Since when they are counted; null where they are compared with history, which has all of them.", None),
    ]


class DepthOut(Answer, kw_only=True):
    """What waits, ready or hidden, and how much has ended."""

    total_depth: Annotated[Count, about("Tasks waiting.", 120)]
    by_priority: Annotated[dict[str, int], about("Tasks waiting, by level.", {"high": 20, "medium": 100, "low": 0})]
    by_type: Annotated[dict[str, int], about("Tasks waiting.", {"resize": 120})]
    by_state: Annotated[dict[str, int], about("Live tasks.", {"queued": 120, "assigned": 1, "executing": 8})]
    by_type_and_state: Annotated[
        dict[str, dict[str, int]],
        about(
            "Every state of each type: live tasks, and those that ended as in `totals`. "
            "Of more than 200 types those with the least to do, then the rarest, are together as `other`.",
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
        about("Seconds from when a task may run, to half a minute; 0 where nothing waits.", {"high": 12.5, "low": 0.0}),
    ]
    oldest_age_seconds: Age
    p50_age_seconds: Age
    p95_age_seconds: Age


class FleetOut(Answer, kw_only=True):
    """Workers by their state."""

    active: Annotated[Count, about("Taking work.", 4)]
    draining: Annotated[Count, about("Finishing what they hold.", 1)]
    unhealthy: Annotated[Count, about("Failed their probes, or say so themselves.")]
    dead: Annotated[Count, about("Gone without a word in the last hour.")]
    total_capacity: Annotated[Count, about("Tasks they could hold.", 20)]
    used_capacity: Annotated[Count, about("Tasks they hold.", 9)]
    open_circuits: Annotated[Count, about("Shut off from a task type, or on trial, because they failed too often.")]
    open_circuits_by_type: Annotated[
        dict[str, int], about("The same by task type; `*` where circuits are of whole workers.", {"resize": 1})
    ]


class ThroughputOut(Answer, kw_only=True):
    """The last minute."""

    completed_last_minute: Annotated[Count, about("Results delivered.", 512)]
    failed_last_minute: Annotated[Count, about("Errors delivered.", 3)]
    avg_task_duration_seconds: Annotated[float | None, about("From start to result; null where none came.", 0.84)]


class RecoveryOut(Answer, kw_only=True):
    """What came back by itself."""

    assignment_timeouts_last_hour: Annotated[Count, about("Handed out and not started.")]
    execution_timeouts_last_hour: Annotated[Count, about("Deadlines passed.")]
    visibility_timeouts_last_hour: Annotated[Count, about("Hidden tasks that fell due: both of the former.")]
    health_probe_failures_last_hour: Annotated[Count, about("Probes of workers' health that failed.")]
    worker_losses_last_hour: Annotated[Count, about("Workers that died executing.")]
    retries_last_hour: Annotated[Count, about("Tried again.", 7)]
    dead_letters_last_hour: Annotated[Count, about("Given up.")]


class StatsOut(Answer, kw_only=True):
    """The queue at a glance."""

    queue: DepthOut
    workers: FleetOut
    throughput: ThroughputOut
    recovery_stats: RecoveryOut
    dead_letters: Annotated[Count, about("Kept for a person to look at.", 2)]
    outbox_length: Annotated[Count, about("Transitions history has yet to take.", 40)]
    due: Annotated[Count, about("Hidden tasks whose time has come and that nobody has moved yet.")]


class BacklogOut(Answer, kw_only=True):
    """What an autoscaler goes by."""

    ready: Annotated[Count, about("Could be handed out now.", 120)]
    executing: Annotated[Count, about("Handed out: assigned or executing.", 8)]
    backlog: Annotated[Count, about("Both together; by `ready` alone busy workers would be ended.", 128)]


class StaleDutyOut(Answer, kw_only=True):
    """A background duty of this process that is not done; its log says why."""

    duty: Annotated[str, about("Which one: docs/runbook.md says what is missing meanwhile.", "sweep")]
    seconds: Annotated[float, about("Since it was last done.", 62.5)]


class StaleElsewhereOut(Answer, kw_only=True):
    """A background duty that another process should do, or that no process does since one that did is gone."""

    duty: Annotated[str, about("Which one.", "prune")]
    process: Annotated[str, about("Host and process id of that one; its log says why.", "monitor-7c9f:1")]
    seconds: Annotated[float, about("Since it was last done, or since that process last said that it does it.", 62.5)]


class ReadyOut(Answer, kw_only=True):
    """The process takes work; what it does beside may fail all the same."""

    status: Annotated[str, about("In one word.", "ready", enum=["ready"])]
    stale_duties: Annotated[
        tuple[StaleDutyOut, ...],
        about("Background duties of this process that have not been done for longer than they should."),
    ]
    stale_elsewhere: Annotated[
        tuple[StaleElsewhereOut, ...],
        about("Those of other processes on this queue, as far as they said so within the last hour."),
    ] = ()


class HealthOut(Answer, kw_only=True):
    """The answer of a probe."""

    status: Annotated[str, about("In one word.", "alive", enum=["alive"])]
