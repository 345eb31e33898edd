"""Links and examples of the worker calls, for the OpenAPI document only."""

from typing import Any

from tideq.api.operations import link_to
from tideq.queue_core.errors import StaleLease, TaskNotFound, WrongState

NOT_HELD = (TaskNotFound, WrongState, StaleLease)
AS_WORKER = "$request.path.worker_id"
TO_THE_WORKER = link_to(
    *(f"worker_protocol_{verb}" for verb in ("poll", "heartbeat", "sync", "leave")), worker_id="/worker_id"
)
TO_THE_CLAIM = link_to(
    *(f"worker_protocol_{verb}" for verb in ("start", "extend", "progress", "result")),
    worker_id=AS_WORKER,
    body={"task_id": "/tasks/0/task_id", "lease": "/tasks/0/lease"},
)
TO_THE_HELD = link_to(
    *(f"worker_protocol_{verb}" for verb in ("extend", "progress", "result")),
    worker_id=AS_WORKER,
    body={"task_id": "$request.body#/task_id", "lease": "$request.body#/lease"},
)
HELD: dict[str, Any] = {
    "task_id": "0195546e-3c7a-7d21-9f04-00a1b2c3d4e5",
    "lease": "1-5d1f0c9a7be24d30a1c8e6f2b7d94a13",
}
HOW_IT_ENDED: dict[str, dict[str, Any]] = {
    "completed": {**HELD, "status": "completed", "result": {"pages": 27}, "execution_duration_seconds": 3.2},
    "discarded": {**HELD, "status": "discarded", "error": {"message": "the customer is gone"}},
    "failed": {**HELD, "status": "failed", "error": {"message": "upstream timed out", "code": "RATE_LIMIT"}},
}
ONE_ROUND_TRIP: dict[str, dict[str, Any]] = {
    "result, start and poll": {
        "results": [HOW_IT_ENDED["completed"]],
        "starts": [{**HELD, "task_id": "0195546e-3c7b-7a02-8c11-00f0e1d2c3b4"}],
        "available_capacity": 3,
        "wait_seconds": 20,
        "poll_id": "p-17",
    },
    "poll only": {"available_capacity": 1},
}
