"""Spans of lives come from transitions, of sampled tasks alone, with ids that anyone can work out."""

import pytest

from tests.kit import Kit
from tests.telemetry.listening import follow, follower
from tests.telemetry.recording import Recording
from tideq.queue_core.outbox.monitor_cursor import Origin
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.scripts.record import NAMES
from tideq.queue_core.task import Definition, TraceContext
from tideq.queue_core.telemetry.spans import INTERNAL, Span, SpanError
from tideq.queue_core.telemetry.trace_context import execution_span_id, parse_traceparent, requeue_span_id
from tideq.workers.monitor.journal.lifecycle_spans import LifecycleSpans
from tideq.workers.monitor.journal.transition import ObservedTransition

QUICKLY = Backoff(base_ms=10, multiplier=1, cap_ms=10)
TRACE_ID, SENDER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def outside() -> frozenset[str]:
    return frozenset({SENDER})


def trace(flags: str) -> TraceContext:
    return TraceContext(f"00-{TRACE_ID}-{SENDER}-{flags}")


async def test_what_is_not_sampled_is_not_told(kit: Kit, tracing: Recording) -> None:
    made = await follower(kit, LifecycleSpans(tracing, "default"))
    await kit.worker()
    for flags in ("00", "02"):
        await kit.submit(trace=trace(flags))
        await kit.complete(await kit.started())
    await kit.submit()
    await kit.complete(await kit.started())

    await follow(made)

    assert tracing.spans == []


async def test_a_life_and_its_phases_hang_under_their_sender(kit: Kit, tracing: Recording) -> None:
    made = await follower(kit, LifecycleSpans(tracing, "default"))
    await kit.worker()
    task_id = await kit.submit(trace=trace("03"))
    await kit.clock.advance(5)
    task = await kit.claimed()
    await kit.clock.advance(5)
    await kit.start(task)
    await kit.complete(task)

    await follow(made)

    _, _, executing, _ = tracing.spans
    assert tracing.names == ["task.queued", "task.assigned", "task.executing", "task.lifecycle"]
    assert {span.parent_id for span in tracing.spans} == {SENDER}
    assert executing.context.span_id == execution_span_id(task_id, 1)
    assert {span.context.trace_id for span in tracing.spans} == {TRACE_ID}


async def test_a_task_that_dies_fails_as_a_whole(kit: Kit, tracing: Recording) -> None:
    made = await follower(kit, LifecycleSpans(tracing, "default"))
    await kit.worker()
    await kit.submit(trace=trace("01"), max_retries=0)
    await kit.fail(await kit.started(), error=b'{"message":"no","code":"BROKEN","details":{"secret":1}}')

    await follow(made)

    failed = {span.name: span.error for span in tracing.spans if span.error}
    assert failed == dict.fromkeys(("task.executing", "task.lifecycle"), SpanError("BROKEN", "no"))
    assert "secret" not in repr(tracing.spans)


async def test_a_lapse_is_told_as_an_error_of_the_assignment(kit: Kit, tracing: Recording) -> None:
    made = await follower(kit, LifecycleSpans(tracing, "default"))
    await kit.worker()
    await kit.submit(trace=trace("01"))
    await kit.clock.advance(5)
    await kit.claimed()
    await kit.clock.advance(31_000)
    await kit.queue.sweep()

    await follow(made)

    assert [(span.name, span.error and span.error.kind) for span in tracing.spans] == [
        ("task.queued", None),
        ("task.assigned", "assignment_lapsed"),
    ]


async def test_every_span_of_several_lives_has_an_id_of_its_own(kit: Kit, tracing: Recording) -> None:
    made = await follower(kit, LifecycleSpans(tracing, "default"))
    await kit.worker()
    task_id = await kit.submit(trace=trace("01"), max_retries=0)
    for _ in range(3):
        await kit.clock.advance(10)
        await kit.claimed()
        await kit.clock.advance(31_000)
        await kit.queue.sweep()
        await kit.clock.advance(10)
        task = await kit.claimed()
        await kit.clock.advance(10)
        await kit.start(task)
        await kit.fail(task)
        await kit.clock.advance(10)
        await kit.queue.retry(task_id)

    await follow(made)

    assert len({span.context.span_id for span in tracing.spans}) == len(tracing.spans) == 3 * 6


async def test_phases_of_no_length_are_not_told(kit: Kit, tracing: Recording) -> None:
    made = await follower(kit, LifecycleSpans(tracing, "default"))
    await kit.worker()
    await kit.submit(trace=trace("01"))
    await kit.clock.advance(5)
    await kit.queue.claim("w1", 1, starts=True)

    await follow(made)

    assert tracing.names == ["task.queued"]


def test_an_execution_within_one_millisecond_is_told_all_the_same(tracing: Recording) -> None:
    """What the worker did hangs under it. Nothing begins before the sender, who began in that millisecond."""
    instants = dict.fromkeys(("created_ms", "assigned_ms", "started_ms", "ended_ms"), b"1700000000000")
    known = {"state": b"completed", "reason": b"succeeded", "attempt": b"1", "age_bucket": b"medium:1", **instants}
    ended = ObservedTransition(b"t" * 36, 1_700_000_000_000, [known.get(name, b"") for name in NAMES], None)
    ended.origin = Origin(trace("01"))

    LifecycleSpans(tracing, "default").observe([ended])

    assert tracing.names == ["task.executing", "task.lifecycle"]
    assert {span.began_ns for span in tracing.spans} == {1_700_000_000_000_999_999}


@pytest.mark.parametrize("lead_ms", [5, 100_000])
async def test_a_life_that_was_asked_for_by_hand_begins_then_and_links_to_it(
    kit: Kit, tracing: Recording, lead_ms: int
) -> None:
    """Not the life of a scheduled task, which waits from its submission on; both also where they were retried."""
    made = await follower(kit, LifecycleSpans(tracing, "default"))

    def tell(task_id: str, definition: Definition, at_ms: int) -> None:
        sender = parse_traceparent(definition.trace.traceparent) if definition.trace else None
        assert sender is not None
        context = sender.child(requeue_span_id(task_id, str(at_ms)))
        tracing.record(Span("replay", INTERNAL, context, sender.span_id, at_ms * 10**6, at_ms * 10**6 + 1))

    for delay_ms in (0, lead_ms):
        worker_id = await kit.worker(f"w{delay_ms}")
        task_id = await kit.submit(trace=trace("01"), delay_ms=delay_ms, max_retries=1, backoff=QUICKLY)
        await kit.clock.advance(lead_ms + 1)
        for _ in range(2):
            await kit.fail(await kit.started(worker_id), worker_id)
            await kit.clock.advance(20)
        await kit.clock.advance(lead_ms)
        await kit.queue.replay(task_id, on_requeued=tell)
        eligible_ms = (await kit.read(task_id)).eligible_at_ms
        for _ in range(2):
            await kit.fail(await kit.started(worker_id), worker_id)
            await kit.clock.advance(20)

        await follow(made)

        first, second = [span for span in tracing.spans if span.name == "task.lifecycle"]
        created_ms = (await kit.read(task_id)).created_at_ms
        assert [span.began_ns // 1_000_000 for span in (first, second)] == [created_ms, eligible_ms]
        assert first.links == ()
        assert [link.span_id for link in second.links] == [requeue_span_id(task_id, str(eligible_ms))]
        tracing.spans.clear()
