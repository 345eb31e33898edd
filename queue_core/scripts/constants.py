"""Passes the settings to the scripts, as arguments that every call gets by itself."""

from typing import Any

from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.settings import QueueSettings


def scripts_for(client: Any, settings: QueueSettings, *, sends_flags: bool = True) -> Scripts:
    keys = Keys(settings.queue_name, settings.partition)
    leases, admission, retention, backoff = settings.leases, settings.admission, settings.retention, settings.backoff
    circuit = settings.circuit
    constants = {
        "wake_channel": keys.wake_channel,
        "is_part": int(settings.is_part),
        "assignment_ms": leases.assignment_ms,
        "heartbeat_timeout_ms": leases.heartbeat_timeout_ms,
        "max_execution_ms": leases.max_execution_ms,
        "max_deliveries": leases.max_deliveries,
        "max_losses": leases.max_losses,
        "soft_depth": admission.soft_depth,
        "high_only_depth": admission.high_only_depth,
        "max_depth": admission.max_depth,
        "client_rate": admission.client_rate_per_second,
        "client_burst": admission.client_burst,
        "max_outbox_entries": admission.max_outbox_entries,
        "max_new_lanes": admission.max_new_lanes_per_day,
        "idempotency_ttl_ms": retention.idempotency_ttl_ms,
        "dead_letter_ttl_ms": retention.dead_letter_ttl_ms,
        "result_ttl_ms": retention.result_ttl_ms,
        "unrecorded_ttl_ms": 0 if retention.has_history else retention.result_ttl_ms,
        "circuit_mode": circuit.mode,
        "circuit_failures": circuit.failures,
        "circuit_window_ms": circuit.window_ms,
        "circuit_open_ms": circuit.open_ms,
        "circuit_trials": circuit.trials,
        "backoff_base_ms": backoff.base_ms,
        "backoff_multiplier": backoff.multiplier,
        "backoff_cap_ms": backoff.cap_ms,
    }
    return Scripts(client, keys, constants, sends_flags=sends_flags)
