"""For every alert: series on which it must fire, and series, just on the other side, on which it must not.

Series are written as promtool writes them: `a+bx60` is a first value, a step a minute and sixty of them.
"""

from typing import NamedTuple

Series = dict[str, str]


class Case(NamedTuple):
    fires: Series
    quiet: Series
    at_minutes: int = 30


def _one(series: str, fires: str, quiet: str, at_minutes: int = 30) -> Case:
    return Case({series: fires}, {series: quiet}, at_minutes)


def _ready(series: str, value: str) -> Case:
    """Where nothing is ready, an old task could not be read or is just being recovered: other alerts tell that."""
    return Case({series: value, READY: "1x60"}, {series: value, READY: "0x60"})


def _outcomes(failed: str, completed: str) -> Series:
    return {DONE.format("failed"): failed, DONE.format("completed"): completed}


DIED = 'tideq_task_dead_letters_total{{process="7", reason="{}", priority="{}"}}'
READY = "tideq_queue_ready_tasks"
DONE = 'tideq_last_minute_executions{{outcome="{}"}}'
QUEUED = 'tideq_queue_tasks{state="queued"}'
AGE = 'tideq_queue_oldest_age_seconds{{priority="{}"}}'
ACTIVE = 'tideq_workers{state="active"}'
LOST = "tideq_worker_heartbeat_failures_total"
SERVED = 'tideq_http_requests_total{{status="{}"}}'
USED, LIMIT = "tideq_store_memory_used_bytes", "tideq_store_memory_limit_bytes"
ENTRIES, MOST = "tideq_outbox_entries", "tideq_outbox_limit_entries"

CASES: dict[str, Case] = {
    "TideQNoActiveWorkers": _one(ACTIVE, "0x60", "1x60"),
    "TideQQueueGrowing": _one(QUEUED, "1001+10x60", "3000-10x60"),
    "TideQHighPriorityBacklog": _one('tideq_queue_priority_tasks{priority="high"}', "1001x60", "1000x60"),
    "TideQPriorityFlooded": _one('tideq_queue_priority_tasks{priority="low"}', "50001x60", "50000x60"),
    "TideQQueueDeep": _one(QUEUED, "5001x60", "5000x60"),
    "TideQHighPriorityWaits": _ready(AGE.format("high"), "61x60"),
    "TideQLowPriorityWaits": _ready(AGE.format("low"), "1501x60"),
    "TideQQueueSlow": _ready(AGE.format("medium"), "601x60"),
    "TideQTasksStale": _ready(AGE.format("low"), "3601x60"),
    "TideQRecoveryBehind": _one("tideq_queue_due_tasks", "101x60", "100x60"),
    "TideQPausedTooLong": _one('tideq_queue_type_paused{task_type="crop"}', "1x90", "0x40 1x50", 80),
    "TideQFailureRateHigh": Case(_outcomes("26x60", "74x60"), _outcomes("25x60", "75x60")),
    "TideQFailureRateRaised": Case(_outcomes("11x60", "89x60"), _outcomes("10x60", "90x60")),
    "TideQDeadLettersGrowing": _one("tideq_tasks_dead_lettered_total", "0+11x60", "0+9x60"),
    "TideQDeadLettersPiledUp": _one("tideq_dead_letters", "101x60", "100x60"),
    "TideQDeadLettersOfOneReason": Case(
        {DIED.format("poison", "high"): "0x10 26x50", DIED.format("poison", "low"): "0x10 26x50"},
        {DIED.format("poison", "high"): "0x10 48x50", DIED.format("discarded", "high"): "0x10 48x50"},
    ),
    "TideQNewWayToDie": _one('tideq_dead_letter_alarms_total{kind="new"}', "0x20 1x40", "5x60"),
    "TideQThroughputHalved": Case(
        {DONE.format("completed"): "100x120 40x40", READY: "1x160"},
        {DONE.format("completed"): "100x120 40x40", READY: "0x160"},
        at_minutes=155,
    ),
    "TideQRetryRateHigh": Case(
        {"tideq_tasks_retried_total": "0+16x60", DONE.format("completed"): "100x60"},
        {"tideq_tasks_retried_total": "0+14x60", DONE.format("completed"): "100x60"},
    ),
    "TideQAssignmentTimeouts": _one("tideq_task_assignment_timeouts_total", "0+6x60", "0+4x60"),
    "TideQVisibilityTimeouts": _one("tideq_task_visibility_timeouts_total", "0+4x60", "0+0.9x60"),
    "TideQIdempotencyConflicts": _one(
        'tideq_refusals_total{problem="idempotency-conflict"}', "0+2x60", "0+0.9x60", at_minutes=40
    ),
    "TideQWorkersDying": Case({LOST: "0x20 1+1x40", ACTIVE: "10x60"}, {LOST: "0x20 1x40", ACTIVE: "10x60"}),
    "TideQFleetBusy": _one("tideq_worker_capacity_used_ratio", "0.91x60", "0.9x60"),
    "TideQFewSlotsFree": _one("tideq_worker_capacity_used_ratio", "0.81x60", "0.8x60"),
    "TideQProbesFail": _one('tideq_worker_probes_total{outcome="failed"}', "0+11x60", "0+9x60"),
    "TideQWorkersUnhealthy": Case(
        {ACTIVE: "8x60", 'tideq_workers{state="unhealthy"}': "1x60"},
        {ACTIVE: "9x60", 'tideq_workers{state="unhealthy"}': "1x60"},
    ),
    "TideQCircuitsOpen": _one("tideq_open_circuits", "6x60", "5x60"),
    "TideQFleetResized": _one(ACTIVE, "10x25 15x35", "10x25 14x35"),
    "TideQNotSeen": Case({}, {"tideq_store_up": "0x60"}),
    "TideQStoreDown": Case(
        {'tideq_store_up{instance="a"}': "0x60", 'tideq_store_up{instance="b"}': "0x60"},
        {'tideq_store_up{instance="a"}': "0x60", 'tideq_store_up{instance="b"}': "1x60"},
    ),
    "TideQStoreUnverified": _one("tideq_store_unverified", "1x60", "0x60"),
    "TideQEpochMismatch": Case(
        {"tideq_store_epoch": "3x60", "tideq_history_epoch": "2x60"},
        {"tideq_store_epoch": "3x60", "tideq_history_epoch": "2x28 3x30"},
    ),
    "TideQStoreMemoryHigh": Case({USED: "81x60", LIMIT: "100x60"}, {USED: "81x60", LIMIT: "0x60"}),
    "TideQSubmissionsRefused": _one('tideq_refusals_total{problem="queue-full"}', "0+1x60", "7x60"),
    "TideQServerErrors": Case(
        {SERVED.format("5xx"): "0+6x60", SERVED.format("2xx"): "0+94x60"},
        {SERVED.format("5xx"): "0+5x60", SERVED.format("2xx"): "0+95x60"},
    ),
    "TideQDutyStale": _one('tideq_duty_stale{duty="sweep"}', "1x60", "0x60"),
    "TideQDutyRestarts": _one('tideq_duty_restarts_total{duty="sweep"}', "0+2x60", "0+1x60", at_minutes=40),
    "TideQSpansDropped": _one("tideq_spans_dropped_total", "0+1x60", "3x60", at_minutes=40),
    "TideQHistoryDown": _one("tideq_history_up", "0x60", "1x60"),
    "TideQReplicationLag": _one("tideq_history_lag_seconds", "61x60", "60x60"),
    "TideQReplicationStuck": _one("tideq_history_lag_seconds", "901x60", "900x60"),
    "TideQOutboxGrowing": Case(
        {ENTRIES: "11000+20000x60", MOST: "1000000x60"}, {ENTRIES: "11000+100x60", MOST: "1000000x60"}, at_minutes=11
    ),
    "TideQEventsParked": _one("tideq_history_parked_events", "1x60", "0x60"),
    "TideQClocksDiffer": _one("tideq_clock_difference_seconds", "61x60", "60x60"),
    "TideQTasksUnreadable": _one("tideq_unreadable_tasks", "1x60", "0x60"),
    "TideQClockStepped": _one("tideq_clock_ahead_seconds", "-61x60", "59x60"),
}
