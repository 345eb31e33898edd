"""The catalogue of metrics: name, kind, meaning and labels of each.

Dashboards and alerts depend on the names: mention a change in the changelog. Labels have closed sets of values, except
`task_type`, chosen by users: the first `MAX_TASK_TYPES` of a process have their own name, all later ones are `other`. A
metric with the label `process` is counted by each process: sum over it. A metric without it describes the store and is
the same from every process: take `max`. All metrics have the label `queue`.
"""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram", "gauge_histogram"]

SHORT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Buckets for requests."""
LONG_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0)
"""Buckets for durations in the life of a task."""


class Metric(NamedTuple):
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()


METRICS: dict[str, Metric] = {
    # The queue, as the store counts it.
    "tideq_build_info": Metric("gauge", "The running version, as a label.", ("version",)),
    "tideq_store_up": Metric("gauge", "Whether the store could be read."),
    "tideq_store_unverified": Metric("gauge", "Whether the store must be compared with history before it is used."),
    "tideq_store_epoch": Metric("gauge", "The epoch this process works in; a lost store gets a new one."),
    "tideq_store_memory_used_bytes": Metric(
        "gauge", "Memory used by the store; in a cluster, by the node nearest its limit."
    ),
    "tideq_store_memory_limit_bytes": Metric("gauge", "The store's memory limit; 0 is none."),
    "tideq_queue_tasks": Metric("gauge", "Live tasks.", ("state",)),
    "tideq_queue_ready_tasks": Metric("gauge", "Waiting tasks that may be claimed now."),
    "tideq_queue_priority_tasks": Metric("gauge", "Waiting tasks of a priority.", ("priority",)),
    "tideq_queue_type_tasks": Metric("gauge", "Waiting tasks of a type.", ("task_type",)),
    "tideq_queue_oldest_age_seconds": Metric(
        "gauge", "Age of the oldest waiting task of a priority, from when it may run.", ("priority",)
    ),
    "tideq_queue_age_seconds": Metric(
        "gauge",
        "Age that this share of the waiting tasks of a priority does not exceed, from when they may run.",
        ("priority", "share"),
    ),
    "tideq_ended_tasks": Metric(
        "gauge", "Ended tasks by their last state, without purged ones.", ("task_type", "state")
    ),
    "tideq_queue_score_seconds": Metric("gauge_histogram", "Scores of the waiting tasks: offset minus age."),
    "tideq_queue_due_tasks": Metric("gauge", "Due tasks that are not recovered yet."),
    "tideq_queue_paused": Metric("gauge", "Whether the whole queue is paused."),
    "tideq_queue_type_paused": Metric("gauge", "Task types that are paused.", ("task_type",)),
    "tideq_unreadable_tasks": Metric("gauge", "Live tasks set aside because this version cannot read them."),
    "tideq_clock_ahead_seconds": Metric(
        "gauge", "How far the queue's time is ahead of its store's clock; below zero, behind it."
    ),
    "tideq_tasks_set_aside_total": Metric("counter", "Times a task was set aside because it could not be read."),
    "tideq_dead_letters": Metric("gauge", "Dead letters in the list."),
    "tideq_outbox_entries": Metric("gauge", "Entries of the outbox, including the backlog of history."),
    "tideq_outbox_limit_entries": Metric("gauge", "Entries of the outbox above which submissions are refused."),
    "tideq_last_minute_executions": Metric("gauge", "Executions that ended, by outcome.", ("outcome",)),
    "tideq_last_hour_recoveries": Metric("gauge", "Recovered and dead-lettered tasks, by reason.", ("kind",)),
    "tideq_workers": Metric("gauge", "Workers, including those that died within the hour.", ("state",)),
    "tideq_worker_slots": Metric("gauge", "Task slots of all workers, used and in total.", ("kind",)),
    "tideq_worker_capacity_used_ratio": Metric("gauge", "Used share of all workers' slots."),
    "tideq_open_circuits": Metric(
        "gauge", "Workers with a circuit that is open or on trial because they failed too often."
    ),
    "tideq_type_open_circuits": Metric(
        "gauge", "Circuits that are open or on trial, by task type; `*` for all types together.", ("task_type",)
    ),
    "tideq_circuits_opened_total": Metric("counter", "Circuits opened because a worker failed too often."),
    "tideq_task_assignment_timeouts_total": Metric("counter", "Claims that were not started in time."),
    "tideq_task_execution_timeouts_total": Metric("counter", "Executions that reached their deadline."),
    "tideq_task_visibility_timeouts_total": Metric("counter", "Claims and executions that timed out: the sum of both."),
    "tideq_task_worker_losses_total": Metric("counter", "Executions whose worker stopped sending heartbeats."),
    "tideq_worker_heartbeat_failures_total": Metric("counter", "Workers declared dead for missed heartbeats."),
    "tideq_worker_failures_total": Metric(
        "counter",
        "Workers found unhealthy or dead: `probe_failed`, `unhealthy_by_itself`, `heartbeat_missed`.",
        ("reason",),
    ),
    "tideq_tasks_dead_lettered_total": Metric("counter", "Tasks that became dead letters."),
    "tideq_tasks_retried_total": Metric("counter", "Retries after errors and timeouts."),
    # History, as the API sees it.
    "tideq_history_up": Metric("gauge", "Whether the state of history could be read."),
    "tideq_history_lag_seconds": Metric("gauge", "Age of the oldest transition that history does not have."),
    "tideq_history_epoch": Metric("gauge", "The epoch of history; a lasting difference from the store's is an error."),
    "tideq_history_parked_events": Metric("gauge", "Events that history could not store, counted up to 10 000."),
    "tideq_clock_difference_seconds": Metric(
        "gauge",
        "Largest difference of PostgreSQL's, the store's and the monitor's clock, when last read.",
        ("process",),
    ),
    # What one process of the API does.
    "tideq_http_requests_total": Metric("counter", "Requests.", ("process", "route", "method", "status")),
    "tideq_http_request_duration_seconds": Metric("histogram", "From routing to the last byte.", ("process", "route")),
    "tideq_refusals_total": Metric("counter", "Refused requests, by problem type.", ("process", "problem")),
    "tideq_claim_duration_seconds": Metric("histogram", "Duration of the store's reply to a claim.", ("process",)),
    "tideq_tasks_submitted_total": Metric("counter", "New tasks, without repeated submissions.", ("process",)),
    "tideq_tasks_claimed_total": Metric("counter", "Tasks claimed for workers.", ("process",)),
    "tideq_undelivered_claims_total": Metric("counter", "Claim replies that could not be delivered.", ("process",)),
    "tideq_event_listeners_cut_off_total": Metric(
        "counter", "Listeners cut off because they fell behind.", ("process",)
    ),
    "tideq_event_listeners": Metric("gauge", "Open event streams.", ("process",)),
    "tideq_events_skipped_total": Metric("counter", "Unreadable events that listeners did not receive.", ("process",)),
    "tideq_waiting_polls": Metric("gauge", "Polls that wait for tasks.", ("process",)),
    # Transitions of tasks, counted by the monitor that read them from the outbox.
    "tideq_transitions_total": Metric("counter", "Transitions.", ("process", "source", "target", "reason")),
    "tideq_task_state_duration_seconds": Metric(
        "histogram", "Time in a state; in `queued`, from when the task may run.", ("process", "state", "priority")
    ),
    "tideq_task_execution_duration_seconds": Metric(
        "histogram", "Duration of executions, by type and outcome.", ("process", "task_type", "outcome")
    ),
    "tideq_task_duration_seconds": Metric("histogram", "From submission to the end.", ("process", "priority", "state")),
    "tideq_task_failures_total": Metric("counter", "Executions that failed.", ("process", "reason", "priority")),
    "tideq_task_retries_total": Metric("counter", "Retries by attempt.", ("process", "attempt", "priority")),
    "tideq_task_dead_letters_total": Metric(
        "counter", "Tasks that became dead letters.", ("process", "reason", "priority")
    ),
    "tideq_journal_gaps_total": Metric(
        "counter", "Times that transitions were trimmed before the monitors read them.", ("process",)
    ),
    "tideq_journal_skipped_total": Metric("counter", "Transitions that could not be read.", ("process",)),
    "tideq_worker_probes_total": Metric("counter", "Probes of workers' health.", ("process", "outcome")),
    "tideq_dead_letter_alarms_total": Metric(
        "counter", "Dead-letter patterns that were new or became frequent.", ("process", "kind")
    ),
    # The replicator.
    "tideq_replicated_events_total": Metric("counter", "Transitions written to history.", ("process",)),
    "tideq_replicated_batches_total": Metric("counter", "Batches written to history.", ("process",)),
    "tideq_replication_delay_seconds": Metric(
        "histogram", "From a batch's last transition to its commit.", ("process",)
    ),
    # Every process of the service: monitor, replicator and API.
    "tideq_duty_restarts_total": Metric("counter", "Restarts of a duty after a failure.", ("process", "duty")),
    "tideq_duty_stale": Metric("gauge", "Whether a duty has not succeeded for too long.", ("process", "duty")),
    "tideq_duty_last_success_age_seconds": Metric(
        "gauge", "Time since a duty succeeded; 0 while it waits for an event.", ("process", "duty")
    ),
    "tideq_spans_dropped_total": Metric(
        "counter", "Spans dropped because the queue was full or the collector refused them.", ("process",)
    ),
}
