"""Spans of lives come from transitions, of sampled tasks alone, with ids that anyone can work out."""

from tests.kit import Kit
from tests.telemetry.listening import follow, follower
from tests.telemetry.recording import Recording
from tideq.queue_core.task import TraceContext
from tideq.queue_core.trace_context import execution_span_id
from tideq.queue_core.tracing import SpanError
from tideq.workers.monitor.journal.spans import LifeSpans

TRACE_ID, SENDER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def trace(flags: str) -> TraceContext:
    return TraceContext(f"00-{TRACE_ID}-{SENDER}-{flags}")


async def test_what_is_not_sampled_is_not_told(kit: Kit) -> None:
    tracing = Recording()
    made = await follower(kit, LifeSpans(tracing, "default"))
    await kit.worker()
    for flags in ("00", "02"):
        await kit.submit(trace=trace(flags))
        await kit.complete(await kit.started())
    await kit.submit()
    await kit.complete(await kit.started())

    await follow(made)

    assert tracing.spans == []


async def test_a_life_hangs_under_its_sender_and_its_phases_under_it(kit: Kit) -> None:
    tracing = Recording()
    made = await follower(kit, LifeSpans(tracing, "default"))
    await kit.worker()
    task_id = await kit.submit(trace=trace("03"))
    await kit.complete(await kit.started())

    await follow(made)

    queued, assigned, executing, life = tracing.spans
    assert (life.name, life.parent_id) == ("task.lifecycle", SENDER)
    assert {span.parent_id for span in (queued, assigned, executing)} == {life.context.span_id}
    assert executing.context.span_id == execution_span_id(task_id, 1)
    assert {span.context.trace_id for span in tracing.spans} == {TRACE_ID}


async def test_a_task_that_dies_fails_as_a_whole(kit: Kit) -> None:
    tracing = Recording()
    made = await follower(kit, LifeSpans(tracing, "default"))
    await kit.worker()
    await kit.submit(trace=trace("01"), max_retries=0)
    await kit.fail(await kit.started(), error=b'{"message":"no","code":"BROKEN","details":{"secret":1}}')

    await follow(made)

    failed = {span.name: span.error for span in tracing.spans if span.error}
    assert failed == dict.fromkeys(("task.executing", "task.lifecycle"), SpanError("BROKEN", "no"))
    assert "secret" not in repr(tracing.spans)


async def test_a_lapse_is_told_as_an_error_of_the_assignment(kit: Kit) -> None:
    tracing = Recording()
    made = await follower(kit, LifeSpans(tracing, "default"))
    await kit.worker()
    await kit.submit(trace=trace("01"))
    await kit.claimed()
    await kit.clock.advance(31_000)
    await kit.queue.sweep()

    await follow(made)

    assert [(span.name, span.error and span.error.kind) for span in tracing.spans] == [
        ("task.queued", None),
        ("task.assigned", "assignment_lapsed"),
    ]


async def test_every_span_of_several_lives_has_an_id_of_its_own(kit: Kit) -> None:
    tracing = Recording()
    made = await follower(kit, LifeSpans(tracing, "default"))
    await kit.worker()
    task_id = await kit.submit(trace=trace("01"), max_retries=0)
    for _ in range(3):
        await kit.claimed()
        await kit.clock.advance(31_000)
        await kit.queue.sweep()
        await kit.fail(await kit.started())
        await kit.clock.advance(10)
        await kit.queue.retry(task_id)

    await follow(made)

    assert len({span.context.span_id for span in tracing.spans}) == len(tracing.spans) == 3 * 6
