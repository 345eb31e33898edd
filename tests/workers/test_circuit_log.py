"""A worker's log says once what it is held back from, and once that this is over."""

import structlog.testing

from tideq.workers.runtime.circuit_log import CircuitLog
from tideq.workers.runtime.service_api import BlockedTaskType

OPEN = BlockedTaskType("resize", "2026-03-02T12:00:00Z", "most of its latest tasks of this type failed")
ON_TRIAL = BlockedTaskType("resize", None, "its next tasks of this type decide")
OPEN_AGAIN = BlockedTaskType("resize", "2026-03-02T12:01:05Z", OPEN.reason)


def events(*told: list[BlockedTaskType]) -> list[tuple[str, str]]:
    log = CircuitLog()
    with structlog.testing.capture_logs() as logs:
        for each in told:
            log.update("w1", each)
    return [(line["log_level"], line["event"]) for line in logs]


def test_an_opening_is_warned_of_once_and_its_end_is_told() -> None:
    assert events([], [OPEN], [OPEN], [ON_TRIAL], []) == [("warning", "circuit opened"), ("info", "circuit closed")]


def test_a_circuit_that_opens_anew_is_warned_of_anew() -> None:
    assert events([OPEN], [ON_TRIAL], [OPEN_AGAIN]) == [("warning", "circuit opened")] * 2
