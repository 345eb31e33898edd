"""Every transition is told once, with the phases it ended, from what its event says and nothing else."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.contract.situations import task_in
from tests.kit import Kit
from tests.telemetry.listening import Ear, Reader, follow, follower, journal
from tideq.queue_core.attempts import LeaseRef
from tideq.queue_core.duties import Duties
from tideq.queue_core.outbox.monitor_cursor import Origin
from tideq.queue_core.outbox.reader import OutboxEntry
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.samples import Counters
from tideq.queue_core.scripts.record import NAMES
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import NewTask, TraceContext
from tideq.queue_core.transitions import TRANSITIONS
from tideq.workers.monitor.journal.follower import Follower
from tideq.workers.monitor.journal.origins import Origins
from tideq.workers.monitor.journal.transition import ObservedTransition, transitions_in
from tideq.workers.monitor.task_metrics import TaskMetrics

REVIVALS = [move for move in TRANSITIONS if move.revives]
QUICKLY = Backoff(base_ms=10_000, multiplier=1, cap_ms=10_000)
TRACE = TraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "v=1", "tenant=a")


async def test_a_task_that_failed_once_is_told_phase_by_phase(kit: Kit) -> None:
    ear = Ear()
    made = await follower(kit, ear)
    await kit.worker()
    await kit.submit(backoff=QUICKLY)
    await kit.clock.advance(1_000)
    first = await kit.claimed()
    await kit.clock.advance(200)
    await kit.start(first)
    await kit.clock.advance(3_000)
    await kit.fail(first, jitter=0.0, error=b'{"message":"no","code":"BROKEN"}')
    await kit.clock.advance(12_000)
    second = await kit.started()
    await kit.clock.advance(500)
    await kit.complete(second)

    await follow(made)

    assert ear.moves() == [
        ("", "queued", "submitted"),
        ("queued", "assigned", "claimed"),
        ("assigned", "executing", "started"),
        ("executing", "queued", "error"),
        ("queued", "assigned", "claimed"),
        ("assigned", "executing", "started"),
        ("executing", "completed", "succeeded"),
    ]
    assert [name for name, _ in ear.phases()] == [
        "task.queued",
        "task.assigned",
        "task.executing",
        "task.backoff",
        "task.queued",
        "task.assigned",
        "task.executing",
        "task.lifecycle",
    ]
    assert _at_least(ear.phases(), (1_000, 200, 3_000, 10_000, 2_000, 0, 500, 16_700))
    assert dict(ear.phases())["task.backoff"] == 10_000
    assert [each.error.code for each in ear.heard if each.error] == ["BROKEN"]
    assert [each.attempt for each in ear.heard] == [0, 1, 1, 1, 2, 2, 2]


async def test_the_phases_of_a_life_leave_no_gap(kit: Kit) -> None:
    ear = Ear()
    made = await follower(kit, ear)
    await kit.worker()
    await kit.submit(backoff=QUICKLY, delay_ms=5_000)
    await kit.clock.advance(6_000)
    await kit.fail(await kit.started())
    await kit.clock.advance(15_000)
    await kit.complete(await kit.started())

    await follow(made)

    *parts, life = [phase for each in ear.heard for phase in each.phases]
    assert parts[0].name == "task.scheduled"
    assert parts[0].ended_ms - parts[0].began_ms == 5_000
    assert [each.began_ms for each in parts] == [life.began_ms, *(each.ended_ms for each in parts[:-1])]
    assert parts[-1].ended_ms == life.ended_ms


async def test_what_was_never_started_is_told_as_that_attempt(kit: Kit) -> None:
    ear = Ear()
    made = await follower(kit, ear)
    await kit.worker()
    await kit.submit()
    await kit.claimed()
    await kit.clock.advance(31_000)
    await kit.queue.sweep()
    released = await kit.claimed()
    await kit.attempts.release("w1", [LeaseRef(released.task_id, released.lease)])

    await follow(made)

    assert ear.moves()[2] == ("assigned", "queued", "assignment_lapsed")
    assert ear.moves()[4] == ("assigned", "queued", "released")
    assert [each.attempt for each in ear.heard] == [0, 1, 1, 1, 1]
    assert [name for name, _ in ear.phases()] == ["task.queued", "task.assigned"] * 2


async def test_a_cancelled_backoff_ends_when_it_was_cancelled(kit: Kit) -> None:
    ear = Ear()
    made = await follower(kit, ear)
    await kit.worker()
    task_id = await kit.submit(backoff=QUICKLY)
    await kit.fail(await kit.started())
    await kit.clock.advance(1_000)
    await kit.queue.cancel(task_id)

    await follow(made)

    assert ear.moves()[-1] == ("queued", "cancelled", "cancelled")
    assert [name for name, _ in ear.phases()[-2:]] == ["task.backoff", "task.lifecycle"]
    assert 1_000 <= ear.phases()[-2][1] < 8_000
    assert not await kit.client.exists(kit.keys.key("backoffs"))


async def test_two_followers_tell_everything_once_between_them(kit: Kit) -> None:
    ears = [Ear(), Ear()]
    followers = [await follower(kit, ear) for ear in ears]
    await kit.worker()

    for turn in range(20):
        await kit.submit(backoff=QUICKLY)
        task = await kit.started()
        await (kit.fail if turn % 2 else kit.complete)(task)
        await followers[turn % 3 == 0].step()
    for made in followers:
        await follow(made)
        await follow(made)

    told = [(each.task_id, each.version) for ear in ears for each in ear.heard]
    assert len(told) == len(set(told)) == 80
    assert all(ear.heard for ear in ears)


async def test_followers_that_read_at_the_same_moment_tell_everything_once(kit: Kit) -> None:
    ears = [Ear(), Ear(), Ear()]
    followers = [await follower(kit, ear) for ear in ears]

    for _ in range(10):
        await kit.queue.submit_many([NewTask(task_type="a")] * 5)
        await asyncio.gather(*(made.step() for made in followers))
    for made in followers:
        await follow(made)
        await follow(made)

    told = [each.task_id for ear in ears for each in ear.heard]
    assert len(told) == len(set(told)) == 50


async def test_of_two_that_read_the_same_stretch_one_tells_it(kit: Kit) -> None:
    """Both have read before either moves on: the moment a compare-and-set is for."""
    one, other = journal(kit), journal(kit)
    ear = Ear()
    await follower(kit, ear)
    await kit.submit()
    place = await one.position()
    (entry,) = (await one.page(place)).entries
    assert (await other.page(place)).entries == [entry]

    first, second = await one.move(place, entry.entry_id), await other.move(place, entry.entry_id)

    assert (first, second) == ([], None)


async def test_a_stream_trimmed_under_the_journal_goes_on_with_what_is_there(kit: Kit) -> None:
    ear = Ear()
    made = await follower(kit, ear)
    await kit.submit()
    await follow(made)
    for _ in range(5):
        await kit.submit()
    await kit.client.xtrim(kit.keys.key("outbox"), maxlen=2, approximate=False)

    await follow(made)

    assert len(ear.heard) == 3
    assert made.gap_count == 1


async def test_nothing_before_the_first_follower_is_told(kit: Kit) -> None:
    await kit.submit()
    ear = Ear()
    made = await follower(kit, ear)
    await kit.submit("later")

    await follow(made)

    assert [each.task_type for each in ear.heard] == ["later"]


async def test_a_listener_that_fails_costs_the_others_nothing(kit: Kit) -> None:
    class Broken:
        wants_origins = False

        def observe(self, transitions: Sequence[ObservedTransition]) -> None:
            raise RuntimeError("no")

    ear = Ear()
    made = await follower(kit, Broken(), ear)
    await kit.submit()

    await follow(made)

    assert len(ear.heard) == 1


async def test_where_a_task_comes_from_is_told_to_those_who_want_it(kit: Kit) -> None:
    ear = Ear(wants_origins=True)
    made = await follower(kit, ear)
    await kit.worker()
    await kit.submit("a", trace=TRACE)
    await kit.submit("b", client_id="shop")
    await follow(made)
    await kit.queue.claim("w1", 2)

    await follow(made)

    assert [each.origin for each in ear.heard] == [Origin(TRACE, "anonymous"), Origin(None, "shop")] * 2


async def test_origins_are_forgotten_with_their_tasks_and_the_oldest_first(kit: Kit) -> None:
    origins, store = Origins(journal(kit), max_entries=10), journal(kit)
    await kit.worker()
    await kit.queue.submit_many([NewTask(task_type="a", trace=TRACE)] * 25)
    done = await kit.started()
    await kit.complete(done)
    told = [each for entry in (await store.page("0-0")).entries for each in transitions_in(entry)]

    await origins.fill_in(told)

    assert all(each.trace == TRACE for each in told)
    assert origins.cached_count == 10


async def test_a_batch_larger_than_a_slice_is_told_in_order(kit: Kit) -> None:
    ear = Ear(wants_origins=True)
    made = await follower(kit, ear)
    submitted = await kit.queue.submit_many([NewTask(task_type="a", trace=TRACE)] * 1_000)

    await follow(made)

    assert [each.task_id for each in ear.heard] == [each.task_id for each in submitted]


async def test_without_listeners_the_store_is_left_alone(kit: Kit) -> None:
    await Follower(journal(kit), []).follow_for_ever(Duties())

    assert not await kit.client.exists(kit.keys.key("monitor_cursor"))


@pytest.mark.parametrize("store", ["valkey", "redis7", "fakeredis"], indirect=True)
async def test_manual_retries_begin_another_life(kit: Kit) -> None:
    ear = Ear()
    made = await follower(kit, ear)
    task_id = await kit.submit()
    await kit.queue.cancel(task_id)
    await kit.clock.advance(1)
    await kit.queue.retry(task_id)
    await kit.queue.cancel(task_id)

    await follow(made)

    lives = [each.life for each in ear.heard if each.is_end]
    assert len(set(lives)) == 2


@pytest.mark.parametrize(("verb", "state"), [(move.verb, state) for move in REVIVALS for state in move.sources])
async def test_a_task_sent_back_by_hand_says_in_which_state_it_was_found(kit: Kit, verb: str, state: TaskState) -> None:
    ear, counters = Ear(), Counters()
    made = await follower(kit, ear, TaskMetrics(counters))
    await kit.worker()
    task = await task_in(kit, state)
    await getattr(kit.queue, verb)(task.task_id)

    await follow(made)

    reason = {"retry": "retried", "replay": "replayed"}[verb]
    assert ear.moves()[-1] == (state, "queued", reason)
    assert counters.samples("7")["tideq_transitions_total"]["7", state, "queued", reason] == 1


async def test_a_retry_that_an_earlier_version_wrote_does_not_say_where_it_came_from(kit: Kit) -> None:
    await kit.worker()
    await kit.queue.retry((await task_in(kit, TaskState.FAILED)).task_id)
    (entry,) = (await journal(kit).page("0-0")).entries[-1:]
    plain = {name: value for name, value in entry.fields.items() if not name.endswith(b":from")}

    (told,) = transitions_in(OutboxEntry(entry.entry_id, plain))

    assert len(plain) == len(entry.fields) - 1
    assert (told.source, told.state, told.reason) == ("", "queued", "retried")


def _at_least(phases: list[tuple[str, int]], milliseconds: tuple[int, ...]) -> bool:
    """The store's clock runs on meanwhile, by less than half a second for each step."""
    return all(0 <= took - least < 500 * len(phases) for (_, took), least in zip(phases, milliseconds, strict=True))


DAMAGED = {
    "created_ms": b"",
    "queued_ms": b"soon",
    "eligible_ms": b"soon",
    "started_ms": b"soon",
    "assigned_ms": b"soon",
    "ended_ms": b"soon",
    "visible_ms": b"soon",
    "retries": b"few",
    "worker": b"\xff",
    "age_bucket": b"\xff:1",
}


@pytest.mark.parametrize("name", DAMAGED)
async def test_an_event_with_a_damaged_field_takes_no_other_with_it(kit: Kit, name: str) -> None:
    reader = Reader()
    made = await follower(kit, reader)
    await kit.worker()
    await kit.submit(backoff=QUICKLY)
    await kit.fail(await kit.started())
    task_id = (await kit.submit()).encode()
    ((_, fields),) = await kit.client.xrevrange(kit.keys.key("outbox"), count=1)
    number, *record = fields[task_id].split(b"\0")
    record[NAMES.index("queued_ms")] = record[NAMES.index("created_ms")]
    record[NAMES.index(name)] = DAMAGED[name]
    await kit.client.xadd(kit.keys.key("outbox"), {**fields, task_id: b"\0".join([number, *record])})
    last = await kit.submit()

    await follow(made)

    assert (made.skipped_count, made.published_count, len(reader.heard)) == (1, 6, 6)
    assert reader.heard[-1].task_id == last


async def test_an_end_that_does_not_say_when_it_began_is_told_without_its_phases(kit: Kit) -> None:
    reader = Reader()
    made = await follower(kit, reader)
    await kit.worker()
    await kit.submit()
    await kit.complete(await kit.started())
    ((_, fields),) = await kit.client.xrevrange(kit.keys.key("outbox"), count=1)
    emptied = {name: _without(value, "started_ms", "ended_ms") for name, value in fields.items() if len(name) == 36}
    await kit.client.xadd(kit.keys.key("outbox"), {**fields, **emptied})

    await follow(made)

    assert (made.skipped_count, len(reader.heard)) == (0, 5)
    assert reader.heard[-1].phases == []


def _without(packed: bytes, *names: str) -> bytes:
    indexes = list(map(NAMES.index, names))
    return b"\0".join([b"" if at in indexes else field for at, field in enumerate(packed.split(b"\0"), -1)])


async def test_a_definition_that_cannot_be_read_costs_its_own_task_the_trace_and_no_other_anything(kit: Kit) -> None:
    ear = Ear(wants_origins=True)
    made = await follower(kit, ear)
    bad = await kit.submit(trace=TRACE)
    good = await kit.submit(trace=TRACE)
    await kit.client.hset(kit.keys.key("definitions"), bad, b"\x92garbage")

    await follow(made)

    assert [(each.task_id, each.origin.trace) for each in ear.heard] == [(bad, None), (good, TRACE)]


async def test_what_a_listener_failed_over_is_counted(kit: Kit) -> None:
    class Broken(Ear):
        def observe(self, transitions: Sequence[ObservedTransition]) -> None:
            raise RuntimeError("no")

    ear = Ear()
    made = await follower(kit, Broken(), ear)
    await kit.submit()
    await kit.submit()

    await follow(made)

    assert (made.skipped_count, len(ear.heard)) == (2, 2)
