"""From events to rows: what a batch comes to, and that every text arrives in PostgreSQL as it was."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import strategies as st

from tests.history.situations import replicate_all, rows
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.definitions import packed_of_columns
from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.replication.batch import changes_in, finished_tasks
from tideq.persistence.replication.rows import EVENTS, Change, Rows
from tideq.queue_core.outbox.reader import OutboxEntry
from tideq.queue_core.scripts.record import NAMES
from tideq.queue_core.states import TaskState
from tideq.queue_core.store.formats import NEWEST_FORMAT
from tideq.queue_core.task import TraceContext

VERSION = EVENTS.columns.split(", ").index("version")
ID, OTHER = b"01a1e36c-7fa5-7796-bba7-00fe0b2dfb4b", b"01a1e36c-7fa5-7796-bba8-00fe0b2dfb4b"


def change(version: int, state: str, reason: str = "", body: bytes | None = None, task_id: bytes = ID) -> Change:
    values = {"state": state, "version": str(version), "reason": reason, "attempt": "1", "age_bucket": "low:7"}
    values |= {"created_ms": "1", "ended_ms": "5" if state in ("completed", "dead_letter", "cancelled") else ""}
    record = "\0".join([str(NEWEST_FORMAT), *(values.get(name, "") for name in NAMES), ""]).encode()
    fields = {b"now_ms": b"5", b"epoch": b"1", task_id: record}
    (made,) = changes_in(OutboxEntry("5-0", fields if body is None else {**fields, task_id + b":body": body}))
    return made


BIRTH, CLAIM, START = change(1, "queued"), change(2, "assigned", "claimed"), change(3, "executing", "started")
DEATH = change(4, "dead_letter", "discarded", b'{"message":"boom"}')
REPLAY = change(5, "queued", "replayed")
PURGE = change(5, "dead_letter", "purged")


def versions(batch: Rows, task_id: bytes = ID) -> list[int]:
    return [row[VERSION] for row in batch.events.get(task_id, ())]


def test_a_whole_life_in_one_batch_is_one_new_task_in_its_last_state() -> None:
    batch = Rows().add([BIRTH, CLAIM, START, DEATH])

    assert versions(batch) == [1, 2, 3, 4]
    assert (set(batch.created), batch.changed(), batch.latest[ID]) == ({ID}, [], DEATH)
    assert batch.is_dead(ID.decode())


def test_an_error_goes_into_the_row_of_its_event_and_is_remembered_for_the_task() -> None:
    batch = Rows().add([START, DEATH])

    assert [row[-1] for row in batch.events[ID]] == [None, b'{"message":"boom"}']
    assert batch.errors == {ID: [b'{"message":"boom"}']}


def test_a_task_known_before_is_changed_once() -> None:
    batch = Rows().add([CLAIM, START])

    assert (set(batch.created), batch.changed()) == (set[bytes](), [ID])
    assert len(batch.changed_rows()) == 1


def test_a_task_that_died_and_was_replayed_in_one_batch_counts_as_a_death_and_is_not_dead() -> None:
    batch = Rows().add([START, DEATH, REPLAY])

    assert [letter.pattern for letter in batch.dead_letters({ID: "resize"})] != []
    assert batch.requeued == {ID}
    assert not batch.is_dead(ID.decode())


def test_a_task_that_died_twice_in_one_batch_is_dead_with_its_last_error() -> None:
    again = change(8, "dead_letter", "discarded", b'{"message":"again"}')
    batch = Rows().add([DEATH, REPLAY, change(6, "assigned"), change(7, "executing"), again])

    assert [letter.message for letter in batch.dead_letters({ID: "resize"})] == ["boom", "again"]
    assert batch.is_dead(ID.decode())


def test_a_purge_leaves_nothing_of_what_came_before_it_in_the_batch() -> None:
    batch = Rows().add([BIRTH, CLAIM, START, DEATH, PURGE, change(1, "queued", task_id=OTHER)])

    assert batch.purged == {ID: PURGE}
    assert (set(batch.created), batch.deaths, batch.errors, versions(batch)) == ({OTHER}, [], {}, [])


def test_an_id_submitted_again_after_its_purge_is_born_again() -> None:
    batch = Rows().add([START, DEATH, PURGE, BIRTH])

    assert (batch.purged, set(batch.created), versions(batch)) == ({ID: PURGE}, {ID}, [1])
    assert not batch.is_dead(ID.decode())


@pytest.mark.parametrize(
    ("story", "finished"),
    [
        ([BIRTH, CLAIM], []),
        ([BIRTH, CLAIM, START, DEATH], [(ID.decode(), 4)]),
        ([DEATH, REPLAY], []),
        ([DEATH, PURGE], []),
        ([change(2, "cancelled"), change(4, "completed", task_id=OTHER)], [(ID.decode(), 2), (OTHER.decode(), 4)]),
    ],
)
def test_finished_is_what_ended_and_stayed_so(story: Sequence[Change], finished: list[tuple[str, int]]) -> None:
    assert finished_tasks(story, but_not=()) == finished
    assert finished_tasks(story, but_not={ID, OTHER}) == []


def test_every_terminal_state_is_acknowledged() -> None:
    for state in TaskState:
        story = [change(9, state.value)]
        assert bool(finished_tasks(story, ())) == (state not in ("queued", "assigned", "executing"))


AWKWARD = [*"\t\n\r\\\v\f\b\x1f\x7f\u2028😀", "\r\n", "\\\\", "\\N", "\\.", "a\\tb", "\\x41", "\\101", ""]
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")) | st.sampled_from(AWKWARD)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
).map(lambda value: json.dumps(value, ensure_ascii=False, indent="\t"))


async def test_awkward_tasks_are_in_history_as_they_were_and_a_rebuild_would_get_the_same_bytes(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    await kit.worker()
    for number, text in enumerate(AWKWARD):
        document = json.dumps({text: [text]}, ensure_ascii=False).encode()
        context = TraceContext(f"00-{number + 1:032x}-{number + 1:016x}-01", text, text)
        tags, searchable = {"tag": text}, {"name": text}
        await kit.submit(
            parameters=document, tags=tags, searchable=searchable, trace=context, idempotency_key=f"{number}{text}"
        )
        await kit.complete(await kit.started(), result=document)
    stored = await kit.client.hgetall(kit.keys.key("definitions"))
    await replicate_all(kept, store.url, kit, migrated)

    kept_rows = await rows(migrated, "SELECT task_id::text, task_type, parameters, attributes, result FROM tasks")
    rebuilt = {
        task_id: packed_of_columns(task_type, text.encode(), rest) for task_id, task_type, text, rest, _ in kept_rows
    }
    assert {task_id.decode(): definition for task_id, definition in stored.items()} == rebuilt
    assert [parameters for _, _, parameters, _, _ in kept_rows] == [result for *_, result in kept_rows]
    assert await rows(migrated, "SELECT FROM parked_events") == []
