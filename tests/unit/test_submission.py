"""What a submission becomes before the store sees it."""

from typing import Any

import msgspec
import pytest

from tideq.queue_core.engine.submission import Submissions, unpack_definition
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.task import Definition, NewTask, TraceContext
from tideq.queue_core.task_id import TaskIds


def packed(task: NewTask) -> Definition:
    return unpack_definition(Submissions(QueueSettings(), TaskIds()).prepare([task])[0].definition)


def test_a_definition_keeps_everything_a_task_was_submitted_with() -> None:
    task = NewTask(
        task_type="resize",
        parameters=b'{"a": 1}',
        required_capabilities=("gpu", "avx", "gpu"),
        tags={"team": "web"},
        trace=TraceContext("00-a-b-01", "state", "baggage"),
        client_id="shop",
        idempotency_key="once",
        run_at_ms=5,
        head_start_ms=7,
        backoff=Backoff(1, 2.0, 3),
        searchable={"order": "42"},
    )

    kept = packed(task)

    same = set(Definition.__struct_fields__) - {"required_capabilities"}
    assert {name: getattr(kept, name) for name in same} == {name: getattr(task, name) for name in same}
    assert kept.required_capabilities == ("avx", "gpu")
    defaults = msgspec.structs.astuple(Definition("", b""))
    assert all(value != default for value, default in zip(msgspec.structs.astuple(kept), defaults, strict=True))


def test_a_plain_definition_is_its_type_and_parameters() -> None:
    assert packed(NewTask(task_type="resize")) == Definition("resize", b"{}")


OWN: tuple[dict[str, Any], ...] = (
    {},
    {"parameters": b"[1]"},
    {"tags": {"team": "web"}},
    {"searchable": {"order": "42"}},
    {"run_at_ms": 0},
    {"run_at_ms": 5},
    {"delay_ms": 5},
    {"idempotency_key": "once"},
    {"trace": TraceContext("00-a-b-01")},
    {"task_id": "01890000-0000-7000-8000-000000000000"},
)


@pytest.mark.parametrize("common", [{}, {"client_id": "shop"}, {"required_capabilities": ("gpu",), "head_start_ms": 7}])
def test_what_tasks_have_in_common_is_worked_out_once_and_what_is_their_own_is_kept(common: dict[str, Any]) -> None:
    """Each after every other, so that none is given what one like it had."""
    submissions = Submissions(QueueSettings(), TaskIds())
    tasks = [NewTask("resize", **{**common, **own}) for first in OWN for own in (first, *OWN)]

    for task in tasks:
        (prepared,) = submissions.prepare([task])
        kept = unpack_definition(prepared.definition)
        assert (kept.task_type, kept.parameters, kept.client_id) == ("resize", task.parameters, task.client_id)
        assert kept.required_capabilities == task.required_capabilities
        assert (kept.head_start_ms, kept.run_at_ms) == (task.head_start_ms, task.run_at_ms)
        assert (kept.tags or {}, kept.searchable or {}) == (task.tags, task.searchable)
        assert (kept.trace or TraceContext(), kept.idempotency_key) == (task.trace, task.idempotency_key)
        assert (prepared.schedule == "") == (task.run_at_ms is None and not task.delay_ms)
        assert (prepared.idempotency == "") == (task.idempotency_key is None)
        assert (prepared.task_id == task.task_id, prepared.has_own_id) == (task.task_id is not None,) * 2
