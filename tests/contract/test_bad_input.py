"""Bad input: each raises its named error, and the store is as it was."""

from typing import Any

import pytest

from tests.contract.situations import NEVER_MADE_ID, started_count, task_in
from tests.kit import Kit
from tideq.queue_core.attempts import Failure, LeaseRef, Success
from tideq.queue_core.errors import (
    InvalidRequest,
    InvalidTask,
    PayloadTooLarge,
    QueueError,
    RankOutOfRange,
    UnknownPriority,
)
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.settings import DEFAULT_PRIORITIES, Priority, QueueSettings
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import NewTask

BAD_TASKS: dict[str, tuple[type[QueueError], dict[str, Any]]] = {
    "unknown-priority": (UnknownPriority, {"priority": "urgentest"}),
    "priority-of-no-letters": (UnknownPriority, {"priority": " "}),
    "payload-too-large": (PayloadTooLarge, {"parameters": b"x" * 262_145}),
    "rank-beyond-2109": (RankOutOfRange, {"run_at_ms": 2**42 - 1}),
    "rank-just-beyond": (RankOutOfRange, {"run_at_ms": 2**42 - 1, "head_start_ms": 99_999_999}),
    "rank-below-zero": (RankOutOfRange, {"head_start_ms": 2**42}),
    "delay-beyond-2109": (RankOutOfRange, {"delay_ms": 2**42}),
    "type-with-a-space": (InvalidTask, {"task_type": "no spaces"}),
    "type-empty": (InvalidTask, {"task_type": ""}),
    "type-too-long": (InvalidTask, {"task_type": "x" * 65}),
    "type-with-a-bar": (InvalidTask, {"task_type": "a|b"}),
    "type-with-a-newline": (InvalidTask, {"task_type": "a\n"}),
    "type-beginning-with-a-dot": (InvalidTask, {"task_type": ".a"}),
    "type-not-ascii": (InvalidTask, {"task_type": "größe"}),
    "capability-with-a-comma": (InvalidTask, {"required_capabilities": ("a,b",)}),
    "too-many-capabilities": (InvalidTask, {"required_capabilities": tuple(f"c{n}" for n in range(17))}),
    "tag-key-no-name": (InvalidTask, {"tags": {"a b": "c"}}),
    "tag-value-too-long": (InvalidTask, {"tags": {"a": "x" * 257}}),
    "too-many-tags": (InvalidTask, {"tags": {f"t{n}": "" for n in range(33)}}),
    "client-no-name": (InvalidTask, {"client_id": "a b"}),
    "id-no-uuid": (InvalidTask, {"task_id": "42"}),
    "id-of-version-4": (InvalidTask, {"task_id": "9b2d1c1e-0000-4000-8000-000000000000"}),
    "id-in-capitals": (InvalidTask, {"task_id": "0189ABCD-0000-7000-8000-000000000000"}),
    "timeout-zero": (InvalidTask, {"timeout_ms": 0}),
    "timeout-beyond-a-day": (InvalidTask, {"timeout_ms": 86_400_001}),
    "retries-negative": (InvalidTask, {"max_retries": -1}),
    "retries-too-many": (InvalidTask, {"max_retries": 1_001}),
    "delay-negative": (InvalidTask, {"delay_ms": -1}),
    "run-at-negative": (InvalidTask, {"run_at_ms": -1}),
    "both-run-at-and-delay": (InvalidTask, {"run_at_ms": 1, "delay_ms": 1}),
    "key-empty": (InvalidTask, {"idempotency_key": ""}),
    "key-too-long": (InvalidTask, {"idempotency_key": "k" * 256}),
    "backoff-negative": (InvalidTask, {"backoff": Backoff(base_ms=-1)}),
    "backoff-multiplier-zero": (InvalidTask, {"backoff": Backoff(multiplier=0)}),
    "backoff-multiplier-nan": (InvalidTask, {"backoff": Backoff(multiplier=float("nan"))}),
    "backoff-beyond-what-a-score-holds": (InvalidTask, {"backoff": Backoff(base_ms=2**60, cap_ms=2**60)}),
}

WRONG_TYPES: dict[str, Any] = {
    "task_type": 7,
    "parameters": "text",
    "priority": 1,
    "required_capabilities": "gpu",
    "required_capabilities.item": (7,),
    "timeout_ms": 1.5,
    "max_retries": True,
    "run_at_ms": "0",
    "delay_ms": 1.5,
    "idempotency_key": 7,
    "tags": [("a", "b")],
    "tags.key": {7: "b"},
    "tags.value": {"a": 7},
    "head_start_ms": 0.5,
    "client_id": 7,
    "backoff": {"base_ms": 1},
    "backoff.base_ms": Backoff(base_ms="1"),  # pyright: ignore[reportArgumentType]
    "task_id": 7,
    "trace": "00-abc",
}


async def refusal_of(kit: Kit, fields: dict[str, Any]) -> type[BaseException] | None:
    try:
        await kit.submit(**{"task_type": "resize", **fields})
    except Exception as error:
        return type(error)
    return None


async def test_submit_of_a_bad_task_is_refused_by_name_and_changes_nothing(kit: Kit) -> None:
    before = await kit.dump()

    refusals = {case: await refusal_of(kit, fields) for case, (_, fields) in BAD_TASKS.items()}

    assert refusals == {case: error for case, (error, _) in BAD_TASKS.items()}
    assert await kit.dump() == before


async def test_submit_of_a_wrong_type_is_refused_by_name_and_changes_nothing(kit: Kit) -> None:
    before = await kit.dump()

    refusals = {case: await refusal_of(kit, {case.partition(".")[0]: value}) for case, value in WRONG_TYPES.items()}

    assert refusals == dict.fromkeys(WRONG_TYPES, InvalidTask)
    assert await kit.dump() == before


@pytest.mark.parametrize("count", [0, 1_001])
async def test_submit_of_a_batch_too_small_or_too_large_changes_nothing(kit: Kit, count: int) -> None:
    before = await kit.dump()

    with pytest.raises(InvalidRequest):
        await kit.queue.submit_many([NewTask(task_type="resize")] * count)

    assert await kit.dump() == before


async def test_submit_of_one_batch_for_two_clients_changes_nothing(kit: Kit) -> None:
    before = await kit.dump()

    with pytest.raises(InvalidTask):
        await kit.queue.submit_many([NewTask(task_type="resize", client_id=name) for name in ("a", "b")])

    assert await kit.dump() == before


@pytest.mark.parametrize("rank_edge", [0, 2**42 - 1])
async def test_submit_with_a_rank_at_the_very_edge_is_taken_and_claimed(kit: Kit, rank_edge: int) -> None:
    # The queue's own clock stands far in the future, so that the rank is the same whatever the real one says.
    now_ms = (await kit.insight.stats()).now_ms
    target_ms = 2**41
    await kit.clock.advance(target_ms - now_ms)
    run_at_ms = target_ms + 600_000
    task = NewTask(task_type="resize", priority="high", run_at_ms=run_at_ms, head_start_ms=run_at_ms - rank_edge)

    submitted = await kit.queue.submit(task)

    await kit.worker()
    await kit.clock.advance(600_000)
    assert submitted.rank == rank_edge
    assert (await kit.claimed()).task_id == submitted.task_id


@pytest.mark.parametrize("verb", ["start", "release"])
@pytest.mark.parametrize("count", [0, 1_001])
async def test_a_batch_of_leases_too_small_or_too_large_changes_nothing(kit: Kit, verb: str, count: int) -> None:
    before = await kit.dump()

    with pytest.raises(InvalidRequest):
        await getattr(kit.attempts, verb)("w1", [LeaseRef(NEVER_MADE_ID, "x")] * count)

    assert await kit.dump() == before


@pytest.mark.parametrize("verb", ["cancel_many", "purge_many", "read_many"])
@pytest.mark.parametrize("count", [0, 1_001])
async def test_a_batch_of_ids_too_small_or_too_large_changes_nothing(kit: Kit, verb: str, count: int) -> None:
    before = await kit.dump()

    with pytest.raises(InvalidRequest):
        await getattr(kit.queue, verb)([NEVER_MADE_ID] * count)

    assert await kit.dump() == before


@pytest.mark.parametrize(
    "fields",
    [{"verdict": "perhaps"}, {"jitter": -6.0}, {"jitter": 1.5}, {"jitter": float("nan")}],
    ids=["unknown-verdict", "jitter-below", "jitter-above", "jitter-nan"],
)
async def test_fail_that_makes_no_sense_changes_nothing(kit: Kit, fields: dict[str, Any]) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    before = await kit.dump()

    with pytest.raises(InvalidRequest):
        await kit.attempts.fail("w1", [Failure(started.task_id, started.lease, b"{}", **fields)])

    assert await kit.dump() == before


async def test_a_lease_of_hostile_text_is_only_stale(kit: Kit) -> None:
    await kit.worker()
    (started,) = await started_count(kit, 1)
    before = await kit.dump()

    for lease in ("", "|", "1-%-1", started.lease + "|", "\x00", "é" * 1_000):
        (outcome,) = await kit.attempts.complete("w1", [Success(started.task_id, lease)])
        assert outcome.error is not None

    assert await kit.dump() == before


class TestOfAPriorityThatIsNoName:
    """Settings refuse it at start; should another way be found, no record has its numbers shifted."""

    @pytest.fixture(params=["very high", "high\nlow"])
    def settings(self, request: pytest.FixtureRequest) -> QueueSettings:
        level = Priority(offset_ms=0, max_retries=3, timeout_ms=60_000)
        return QueueSettings(default_priority="medium", priorities=DEFAULT_PRIORITIES | {request.param: level})

    async def test_a_submission_with_it_is_refused_and_the_queue_goes_on(self, kit: Kit) -> None:
        (priority,) = kit.settings.priorities.keys() - DEFAULT_PRIORITIES.keys()
        await kit.worker()
        task_id = await kit.submit()
        before = await kit.dump()

        with pytest.raises(InvalidTask):
            await kit.queue.submit_many([NewTask(task_type="resize", priority=priority)])

        assert await kit.dump() == before
        assert (await kit.claimed()).task_id == task_id


@pytest.mark.parametrize(
    "line",
    [
        "resize| very high 0 0 3 60000 ",
        "resize| high 0 0 3",
        "resize| high x 0 3 60000 ",
        "",
        "resize| high 0 0 3 60000 a b",
    ],
)
async def test_a_kind_that_cannot_be_read_whole_is_refused_and_nothing_of_the_batch_stands(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """Read by halves its fields would be shifted by one, and every claim would meet what it made."""
    call: Any = kit.engine.scripts.call

    def misspelt(name: str, /, *arguments: Any, **named: Any) -> Any:
        if name == "submit":
            named["kinds"] = line
        return call(name, *arguments, **named)

    monkeypatch.setattr(kit.engine.scripts, "call", misspelt)

    with pytest.raises(InvalidTask, match="kind"):
        await kit.submit()

    assert (await kit.insight.stats()).total_depth == 0
