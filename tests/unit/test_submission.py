"""What a submission becomes before the store sees it."""

import msgspec

from tideq.queue_core.engine.submission import Submissions, unpack_definition
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.task import Definition, NewTask, TraceContext


def packed(task: NewTask) -> Definition:
    return unpack_definition(Submissions(QueueSettings()).prepare([task])[0].definition)


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
