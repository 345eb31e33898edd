"""Every event of a queue, as its outbox has them, and what must be true of them whoever won."""

import itertools
from collections import Counter
from typing import NamedTuple

from tests.kit import Kit
from tideq.queue_core.scripts.record import parse_record
from tideq.queue_core.states import TaskState
from tideq.queue_core.transitions import TERMINAL, is_legal

RAW = "return redis.call('XRANGE', KEYS[1], '-', '+')"
"""Raw, so that the order of the events in an entry is the store's own."""


class Event(NamedTuple):
    task_id: str
    version: int
    state: TaskState
    reason: str


async def read_events(kit: Kit) -> list[Event]:
    entries = await kit.client.eval(RAW, 1, kit.keys.key("outbox"))
    return [event for _, fields in entries for event in _events(fields)]


def _events(fields: list[bytes]) -> list[Event]:
    names, values = fields[::2], fields[1::2]
    assert names[:2] == [b"now_ms", b"epoch"]
    return [_event(name, value) for name, value in zip(names[2:], values[2:], strict=True) if b":" not in name]


def _event(name: bytes, packed: bytes) -> Event:
    record = parse_record(packed)
    return Event(name.decode(), record.number("version"), TaskState(record.text("state")), record.text("reason"))


async def audit(kit: Kit, *, endings: int | None = 1) -> dict[str, list[Event]]:
    """Each task's events are its versions 1 … n, each a legal step, and so many of them endings; the store agrees.

    `None` endings are one or none.
    """
    stories: dict[str, list[Event]] = {}
    for event in await read_events(kit):
        stories.setdefault(event.task_id, []).append(event)
    for story in stories.values():
        assert [event.version for event in story] == list(range(1, len(story) + 1)), story
        states = [None, *(event.state for event in story)]
        assert all(is_legal(source, target) for source, target in itertools.pairwise(states) if target)
        ended = sum(event.state in TERMINAL for event in story)
        assert ended <= 1 if endings is None else ended == endings, story
    await _compare_with_store(kit, stories)
    await kit.assert_sound()
    return stories


async def _compare_with_store(kit: Kit, stories: dict[str, list[Event]]) -> None:
    for task_id, story in stories.items():
        task = await kit.read(task_id)
        assert (task.version, task.state, task.reason) == (story[-1].version, story[-1].state, story[-1].reason)


def steps(stories: dict[str, list[Event]]) -> Counter[tuple[str, str]]:
    """How many times each state was entered, and why."""
    return Counter((event.state.value, event.reason) for story in stories.values() for event in story)
