"""What a handler is told about its task, and what its log lines say."""

import pytest
from structlog.testing import capture_logs

from tideq.workers.runtime.context import TaskContext

TASK_ID, DIGITS = "0195546e-3c7a-7d21-9f04-00a1b2c3d4e5", "0195546e3c7a7d219f0400a1b2c3d4e5"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


class Silence:
    def progress(self, task_id: str, lease: str, percent: float, message: str) -> None: ...
    def extend(self, task_id: str, lease: str, seconds: float) -> None: ...


@pytest.mark.parametrize(
    ("traceparent", "trace_id"), [(None, DIGITS), (f"00-{TRACE_ID}-00f067aa0ba902b7-01", TRACE_ID)]
)
def test_a_handlers_lines_name_the_tasks_trace_or_its_own(traceparent: str | None, trace_id: str) -> None:
    context = TaskContext(TASK_ID, "resize", 2, "l", 60.0, Silence(), traceparent)

    with capture_logs() as lines:
        context.log.info("resized")

    about = {"task_id": TASK_ID, "task_type": "resize", "attempt": 2, "trace_id": trace_id}
    assert lines == [{"event": "resized", "log_level": "info", **about}]
    assert context.trace_id == trace_id
