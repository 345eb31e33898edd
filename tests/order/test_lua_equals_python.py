"""What is written in Lua and in Python says the same: scores, retry delays and timeouts, who serves which lane."""

import string

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.kit import Kit
from tests.order.bench import Bench, examples
from tests.order.line import OFFSET_MS
from tideq.queue_core import lanes, retry_policy, score
from tideq.queue_core.attempts import LeaseRef
from tideq.queue_core.errors import RankOutOfRange
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.settings import Admission, Circuit, QueueSettings
from tideq.queue_core.task import NewTask, WorkerDeclaration

EVERY_LANE = [f"type-{number}" for number in range(score.MAX_LANES)]
ROOMY = QueueSettings(admission=Admission(max_new_lanes_per_day=score.MAX_LANES))

MAX = score.MAX_RANK
ranks = st.sampled_from([-1, 0, 1, MAX - 1, MAX, MAX + 1]) | st.integers(-1_000, MAX + 1_000)


@examples(4)
@given(
    placed=st.lists(
        st.tuples(
            st.sampled_from([0, 1, score.MAX_LANES - 2, score.MAX_LANES - 1]) | st.integers(0, score.MAX_LANES - 1),
            st.sampled_from(list(OFFSET_MS)),
            ranks,
            st.none() | st.integers(1, 10**9),
        ),
        min_size=40,
        max_size=60,
    )
)
def test_scores_in_the_store_are_those_of_score_py(
    bench: Bench, placed: list[tuple[int, str, int, int | None]]
) -> None:
    async def play(kit: Kit) -> None:
        for start in range(0, score.MAX_LANES, 1_000):
            await kit.queue.submit_many([NewTask(task_type=name) for name in EVERY_LANE[start : start + 1_000]])
        numbers = {name.decode(): int(lane) for name, lane in (await kit.client.hgetall(kit.keys.key("lanes"))).items()}
        assert sorted(numbers.values()) == list(range(score.MAX_LANES))
        await kit.clock.stop()
        for number, priority, rank, delay_ms in placed:
            task = NewTask(task_type=EVERY_LANE[number], priority=priority, delay_ms=delay_ms)
            await _compare_score(kit, task, rank, numbers[f"{task.task_type}|"])

    bench.run(play, ROOMY)


async def _compare_score(kit: Kit, task: NewTask, rank: int, lane: int) -> None:
    """Time stands still, so the head start that leads to a rank can be told."""
    eligible_at_ms = (await kit.insight.stats()).now_ms + (task.delay_ms or 0)
    offset_ms = OFFSET_MS[task.priority or ""]
    task = msgspec.structs.replace(task, head_start_ms=eligible_at_ms + offset_ms - rank)
    assert score.rank(eligible_at_ms, offset_ms, task.head_start_ms) == rank
    if not score.is_rank(rank):
        with pytest.raises(RankOutOfRange) as refused:
            await kit.queue.submit(task)
        assert refused.value.rank == rank
        return
    answer = await kit.queue.submit(task)
    kept = await kit.client.zscore(kit.keys.key("queue"), answer.task_id)
    assert answer.rank == rank
    assert kept == (eligible_at_ms if task.delay_ms else score.ready_score(lane, rank))


backoffs = st.builds(
    Backoff,
    base_ms=st.integers(0, 100_000),
    multiplier=st.sampled_from([1.0, 2.0, 1000.0]) | st.floats(0.001, 10),
    cap_ms=st.sampled_from([0, 1, 21_600_000]) | st.integers(0, 10**8),
)
codes = st.sampled_from(["", "TIMEOUT", "OUT_OF_MEMORY", "RATE_LIMIT", "TEMPORARY_UNAVAILABLE", "OTHER", "timeout"])
failures = st.tuples(codes, st.sampled_from([-1.0, 0.0, 1.0]) | st.floats(-1, 1))


@examples(40)
@given(
    own=st.none() | backoffs,
    service=backoffs,
    timeout_ms=st.sampled_from([1, 3, 2_400_001, 3_600_000, 3_600_001]) | st.integers(1, 10_000_000),
    tries=st.lists(failures, min_size=1, max_size=6),
)
@example(own=None, service=Backoff(), timeout_ms=600_000, tries=[("RATE_LIMIT", 1.0)] * 15)
@example(own=Backoff(1, 1.2, 10**9), service=Backoff(), timeout_ms=1, tries=[("OUT_OF_MEMORY", 0.3)] * 70)
def test_retry_delays_and_raised_timeouts_are_those_of_retry_policy_py(
    bench: Bench, own: Backoff | None, service: Backoff, timeout_ms: int, tries: list[tuple[str, float]]
) -> None:
    async def play(kit: Kit) -> None:
        await kit.worker()
        task_id = await kit.submit(backoff=own, timeout_ms=timeout_ms, max_retries=len(tries))
        allowed_ms = timeout_ms
        for retry, (code, jitter) in enumerate(tries):
            await kit.fail(await kit.started(), code=code, jitter=jitter)
            delay_ms = retry_policy.delay_ms(own or service, retry, code, jitter)
            allowed_ms = retry_policy.next_timeout_ms(allowed_ms, code)

            task = await kit.read(task_id)
            # A task that is due already may have become ready by no script but a claim: it is still hidden here.
            assert task.visible_at_ms == task.state_since_ms + delay_ms
            assert (task.timeout_ms, task.retry_count) == (allowed_ms, retry + 1)
            await kit.clock.advance(delay_ms)

    bench.run(play, QueueSettings(backoff=service, circuit=Circuit(failures=1_000)))


ALIKE = ("mail", "mailer", "ma", "MAIL", "a.b", "a-b", "a", "b", "axb", "0", "00")
"""Names that a sloppy match would take for one another."""

names = st.sampled_from(ALIKE) | st.text(string.ascii_letters + string.digits, min_size=1, max_size=2)
name_sets = st.lists(names, max_size=4).map(tuple)


@examples(40)
@given(
    signatures=st.lists(st.tuples(names, name_sets), min_size=1, max_size=20),
    profiles=st.lists(st.tuples(st.none() | name_sets.filter(bool), name_sets), min_size=1, max_size=12),
)
def test_a_claim_hands_out_what_lanes_py_says_the_worker_serves(
    bench: Bench,
    signatures: list[tuple[str, tuple[str, ...]]],
    profiles: list[tuple[tuple[str, ...] | None, tuple[str, ...]]],
) -> None:
    async def play(kit: Kit) -> None:
        answers = await kit.queue.submit_many(
            [NewTask(task_type=name, required_capabilities=required) for name, required in signatures]
        )
        for number, (task_types, capabilities) in enumerate(profiles):
            worker_id, profile = f"w{number}", lanes.worker_profile(task_types, capabilities)
            await kit.fleet.register(
                WorkerDeclaration(worker_id=worker_id, task_types=task_types, capabilities=capabilities)
            )

            tasks = (await kit.queue.claim(worker_id, 100)).tasks

            assert {task.task_id for task in tasks} == {
                answer.task_id
                for answer, signature in zip(answers, signatures, strict=True)
                if lanes.serves(profile, lanes.lane_signature(*signature))
            }
            if tasks:
                await kit.attempts.release(worker_id, [LeaseRef(task.task_id, task.lease) for task in tasks])

    bench.run(play)
