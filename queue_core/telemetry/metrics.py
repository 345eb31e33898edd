"""Every metric: its name, what it is, what it means and by what it is told apart.

Names are what dashboards and alerts go by: to change one, say so in the changelog. Labels take their values from closed
sets; the one text of users among them, the task type, is told by name for the first `MAX_TASK_TYPES` a process meets
and as `other` from then on. A metric labelled `process` is counted by each process for itself: add them up. One that is
not is a fact of the store, the same whoever tells it: take `max`. All carry the queue's name as `queue`.
"""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram", "gauge_histogram"]

SHORT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""For what answers somebody."""
LONG_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0)
"""For what tasks go through."""


class Metric(NamedTuple):
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()


METRICS: dict[str, Metric] = {
    # The queue, as the store counts it.
    "tideq_build_info": Metric("gauge", "Which version runs.", ("version",)),
    "tideq_store_up": Metric("gauge", "Whether the store told of the queue."),
    "tideq_store_in_doubt": Metric("gauge", "Whether the store has to be compared with history before it is used."),
    "tideq_store_epoch": Metric("gauge", "The epoch this process works in; a store that was lost gets a new one."),
    "tideq_store_memory_used_bytes": Metric(
        "gauge", "Memory the store uses; of a cluster, the node nearest its limit."
    ),
    "tideq_store_memory_limit_bytes": Metric("gauge", "The store's limit; 0 is none."),
    "tideq_queue_tasks": Metric("gauge", "Live tasks.", ("state",)),
    "tideq_queue_ready_tasks": Metric("gauge", "Waiting tasks that could be handed out now."),
    "tideq_queue_priority_tasks": Metric("gauge", "Waiting tasks of a priority.", ("priority",)),
    "tideq_queue_type_tasks": Metric("gauge", "Waiting tasks of a type.", ("task_type",)),
    "tideq_queue_oldest_age_seconds": Metric(
        "gauge", "Age of the oldest waiting task of a priority, from when it may run.", ("priority",)
    ),
    "tideq_queue_age_seconds": Metric(
        "gauge",
        "Age that this share of the waiting tasks of a priority keeps within, from when they may run.",
        ("priority", "share"),
    ),
    "tideq_ended_tasks": Metric(
        "gauge", "Tasks that ended, by how they ended last, less what was purged.", ("task_type", "state")
    ),
    "tideq_queue_score_seconds": Metric("gauge_histogram", "Scores of the waiting tasks: offset minus age."),
    "tideq_queue_due_tasks": Metric("gauge", "Tasks that fell due and nobody has recovered yet."),
    "tideq_queue_paused": Metric("gauge", "Whether the whole queue is paused."),
    "tideq_queue_type_paused": Metric("gauge", "Task types that are paused.", ("task_type",)),
    "tideq_unreadable_tasks": Metric("gauge", "Live tasks set aside because this version cannot read them."),
    "tideq_clock_ahead_seconds": Metric(
        "gauge", "How far the queue's time is ahead of its store's clock; below zero, behind it."
    ),
    "tideq_tasks_set_aside_total": Metric("counter", "Times a task was set aside because it could not be read."),
    "tideq_dead_letters": Metric("gauge", "Tasks given up and kept."),
    "tideq_outbox_entries": Metric("gauge", "Entries of the outbox, history's backlog among them."),
    "tideq_outbox_limit_entries": Metric("gauge", "Entries of the outbox above which submissions are refused."),
    "tideq_last_minute_executions": Metric("gauge", "Executions that ended, by how.", ("outcome",)),
    "tideq_last_hour_recoveries": Metric("gauge", "What was brought back or given up, by why.", ("kind",)),
    "tideq_workers": Metric("gauge", "Workers, those that died within the hour included.", ("state",)),
    "tideq_worker_slots": Metric("gauge", "Tasks the fleet holds, and could hold.", ("kind",)),
    "tideq_worker_capacity_used_ratio": Metric("gauge", "Share of the fleet's slots that is taken."),
    "tideq_open_circuits": Metric(
        "gauge", "Workers shut off from a task type, or on trial, because they failed too often."
    ),
    "tideq_type_open_circuits": Metric(
        "gauge", "The same workers by task type; `*` where circuits are of whole workers.", ("task_type",)
    ),
    "tideq_circuits_opened_total": Metric("counter", "Times a worker was shut off from a task type for failing."),
    "tideq_task_assignment_timeouts_total": Metric("counter", "Claims that were never started in time."),
    "tideq_task_execution_timeouts_total": Metric("counter", "Executions that ran into their deadline."),
    "tideq_task_visibility_timeouts_total": Metric("counter", "Hidden tasks that fell due: both of the former."),
    "tideq_task_worker_losses_total": Metric("counter", "Executions whose worker fell silent."),
    "tideq_worker_heartbeat_failures_total": Metric("counter", "Workers given up for their silence."),
    "tideq_worker_failures_total": Metric(
        "counter",
        "Workers found unhealthy or dead: `probe_failed`, `unhealthy_by_itself`, `heartbeat_missed`.",
        ("reason",),
    ),
    "tideq_tasks_dead_lettered_total": Metric("counter", "Tasks given up, for whatever reason."),
    "tideq_tasks_retried_total": Metric("counter", "Retries spent, on errors and on time-outs."),
    # History, as the API sees it.
    "tideq_history_up": Metric("gauge", "Whether history told how far it is."),
    "tideq_history_lag_seconds": Metric("gauge", "Age of the oldest transition that history does not have."),
    "tideq_history_epoch": Metric("gauge", "The epoch history is in; another than the store's must not last."),
    "tideq_history_parked_events": Metric("gauge", "Events that history could not take, up to 10 000."),
    "tideq_clock_difference_seconds": Metric(
        "gauge", "Between PostgreSQL's, the store's and the monitor's clock, at most, at the last look.", ("process",)
    ),
    # What one process of the API does.
    "tideq_http_requests_total": Metric("counter", "Requests.", ("process", "route", "method", "status")),
    "tideq_http_request_duration_seconds": Metric("histogram", "From routing to the last byte.", ("process", "route")),
    "tideq_refusals_total": Metric("counter", "Requests refused, by the problem told.", ("process", "problem")),
    "tideq_claim_duration_seconds": Metric("histogram", "The store's answer to a claim.", ("process",)),
    "tideq_tasks_submitted_total": Metric("counter", "Tasks taken, repeated submissions not counted.", ("process",)),
    "tideq_tasks_claimed_total": Metric("counter", "Tasks claimed for workers.", ("process",)),
    "tideq_undelivered_answers_total": Metric("counter", "Answers with tasks that reached nobody.", ("process",)),
    "tideq_event_listeners_cut_off_total": Metric("counter", "Listeners that did not keep up.", ("process",)),
    "tideq_event_listeners": Metric("gauge", "Open event streams.", ("process",)),
    "tideq_events_skipped_total": Metric("counter", "Events that listeners missed, being unreadable.", ("process",)),
    "tideq_waiting_polls": Metric("gauge", "Polls that wait for work.", ("process",)),
    # What tasks go through, told by whichever monitor read it in the outbox.
    "tideq_transitions_total": Metric("counter", "Transitions.", ("process", "source", "target", "reason")),
    "tideq_task_state_duration_seconds": Metric(
        "histogram", "Time in a state; in `queued`, from when it could run.", ("process", "state", "priority")
    ),
    "tideq_task_execution_duration_seconds": Metric(
        "histogram", "Executions, by type and by how they ended.", ("process", "task_type", "outcome")
    ),
    "tideq_task_duration_seconds": Metric("histogram", "From submission to the end.", ("process", "priority", "state")),
    "tideq_task_failures_total": Metric("counter", "Executions that failed.", ("process", "reason", "priority")),
    "tideq_task_retries_total": Metric("counter", "Retries by attempt.", ("process", "attempt", "priority")),
    "tideq_task_dead_letters_total": Metric("counter", "Tasks given up.", ("process", "reason", "priority")),
    "tideq_journal_gaps_total": Metric(
        "counter", "Times transitions were trimmed before they were told.", ("process",)
    ),
    "tideq_journal_skipped_total": Metric("counter", "Transitions that could not be read.", ("process",)),
    "tideq_worker_probes_total": Metric("counter", "Probes of workers' health.", ("process", "outcome")),
    "tideq_dead_letter_alarms_total": Metric(
        "counter", "Ways to die that were new, or became frequent.", ("process", "kind")
    ),
    # What the replicator does.
    "tideq_replicated_events_total": Metric("counter", "Transitions written to history.", ("process",)),
    "tideq_replicated_batches_total": Metric("counter", "Batches written to history.", ("process",)),
    "tideq_replication_delay_seconds": Metric(
        "histogram", "From a batch's last transition to its commit.", ("process",)
    ),
    # What every process of the service does beside: the monitor, the replicator and the API.
    "tideq_duty_restarts_total": Metric("counter", "Times a duty failed and began anew.", ("process", "duty")),
    "tideq_duty_stale": Metric(
        "gauge", "Whether a duty has not succeeded for longer than it should.", ("process", "duty")
    ),
    "tideq_duty_last_success_age_seconds": Metric(
        "gauge", "Time since a duty succeeded; 0 while it waits for something to happen.", ("process", "duty")
    ),
    "tideq_spans_dropped_total": Metric(
        "counter", "Spans that there was no room for, or that nobody took.", ("process",)
    ),
}
