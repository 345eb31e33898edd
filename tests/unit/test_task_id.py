"""Ids: they sort, they carry their partition, and they are UUIDv7."""

import uuid
from itertools import chain, repeat

import pytest

from tideq.queue_core.engine.clock import StoreTime
from tideq.queue_core.task_id import MAX_COUNTER, TaskIds, is_task_id, partition_of


def test_ids_of_one_process_sort_as_they_were_made() -> None:
    ids = TaskIds()

    made = [ids.new() for _ in range(5_000)]

    assert made == sorted(set(made))


def test_ids_keep_rising_when_the_clock_steps_back() -> None:
    clock = iter(chain([1_000_000, 999_000], repeat(5_000)))
    ids = TaskIds(clock_ms=lambda: next(clock))

    made = [ids.new() for _ in range(100)]

    assert made == sorted(set(made))


def test_a_full_counter_borrows_the_next_millisecond() -> None:
    ids = TaskIds(clock_ms=lambda: 1_000_000)
    first = ids.new()
    ids._counter = MAX_COUNTER  # pyright: ignore[reportPrivateUsage]

    assert ids.new() > first


def test_an_id_is_a_version_seven_uuid_that_names_its_partition() -> None:
    for partition in (0, 1, 200, 255):
        task_id = TaskIds(partition).new()

        assert uuid.UUID(task_id).version == 7
        assert uuid.UUID(task_id).variant == uuid.RFC_4122
        assert partition_of(task_id) == partition


def test_only_lower_case_dashed_version_seven_texts_are_ids() -> None:
    task_id = TaskIds().new()

    assert is_task_id(task_id)
    for other in (task_id.upper(), task_id.replace("-", ""), str(uuid.uuid4()), "", "x", "{" + task_id + "}"):
        assert not is_task_id(other)


def test_ids_made_together_are_what_as_many_single_ones_would_be() -> None:
    ids = TaskIds(7, clock_ms=lambda: 1_000_000)
    first = ids.new()

    together, after = ids.many(40_000), ids.new()

    assert [first, *together, after] == sorted({first, *together, after})
    assert all(is_task_id(task_id) and partition_of(task_id) == 7 for task_id in together[::1_000])
    assert {task_id[-12:] for task_id in together} == {first[-12:]}


def test_ids_made_together_never_pass_the_end_of_the_counter() -> None:
    ids = TaskIds(clock_ms=lambda: 1_000_000)
    first = ids.new()
    ids._counter = MAX_COUNTER - 5  # pyright: ignore[reportPrivateUsage]

    together, after = ids.many(10), ids.new()

    assert [first, *together, after] == sorted({first, *together, after})
    assert all(map(is_task_id, together))


def test_ids_go_on_with_the_stores_time_between_its_replies() -> None:
    seconds = 5.0
    time = StoreTime(monotonic=lambda: seconds)
    ids = TaskIds(clock_ms=time.now_ms)
    with pytest.raises(RuntimeError, match="not known"):
        ids.new()

    time.note(1_700_000_000_000)
    seconds += 90

    assert uuid.UUID(ids.new()).int >> 80 == 1_700_000_090_000
