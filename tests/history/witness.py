"""What happened, seen from outside: for the checker, which imports none of our code, and so neither does this.

Callers note in a `Ledger` what they were told. `OutboxCopy` copies the outbox entry by entry with a plain client while
it grows, and reads it in its own way.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import redis.asyncio as redis
from redis.exceptions import ResponseError

STATE, VERSION, ATTEMPT, WORKER, REASON, ENDED = 0, 1, 6, 8, 9, 12
"""Places in a record, which is a line of texts with a zero byte after each."""


class Event(NamedTuple):
    task_id: str
    epoch: int
    version: int
    at_ms: int
    state: str
    reason: str
    attempt: int
    worker: str | None
    error: str | None


class Happening(NamedTuple):
    """An event with what only the latest row of a task shows."""

    event: Event
    result: str | None
    ended_ms: int | None


class Ledger:
    """What callers were told."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.parameters: dict[str, bytes] = {}
        self.results: dict[str, bytes] = {}
        self.endings: dict[str, str] = {}
        self.errors: dict[str, list[bytes]] = {}
        self.purged: set[str] = set()

    def submitted(self, task_id: str, parameters: bytes) -> None:
        self.ids.append(task_id)
        self.parameters[task_id] = parameters

    def completed(self, task_id: str, result: bytes) -> None:
        assert task_id not in self.results, f"two results accepted for {task_id}"
        self.results[task_id] = result
        self.endings[task_id] = "completed"

    def failed(self, task_id: str, state: str, error: bytes) -> None:
        self.errors.setdefault(task_id, []).append(error)
        if state != "queued":
            self.endings[task_id] = state

    def ended(self, task_id: str, state: str) -> None:
        self.endings[task_id] = state

    @property
    def known(self) -> set[str]:
        """Acknowledged, and not removed since."""
        return self.parameters.keys() - self.purged


class OutboxCopy:
    """Every entry of a stream from its first on. Read raw: the driver would make a dictionary of the pairs."""

    def __init__(self, redis_url: str, stream: str) -> None:
        driver: Any = redis.Redis
        self._client = driver.from_url(redis_url, protocol=2)
        self._client.set_response_callback("XREAD", _as_it_came)
        self._stream = stream
        self.entry_ids: list[str] = []
        self.happenings: list[Happening] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "OutboxCopy":
        self._task = asyncio.create_task(self._copy_for_ever())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        while not self._task.done():
            self._task.cancel()  # again: before Python 3.12 the driver may lose one
            await asyncio.wait([self._task], timeout=0.1)
        await self._client.aclose()

    async def whole(self) -> list[Happening]:
        """All there ever was, once writing has ended: compared with what the server counted."""
        assert self._task is not None
        while len(self.entry_ids) < await self.added_count():
            assert not self._task.done(), self._task.exception()
            await asyncio.sleep(0.01)
        assert len(self.entry_ids) == await self.added_count()
        return self.happenings

    async def added_count(self) -> int:
        return (await self._info()).get("entries-added", 0)

    async def first_kept(self) -> str | None:
        entry = (await self._info()).get("first-entry")
        return entry[0].decode() if entry else None

    async def _info(self) -> dict[str, Any]:
        try:
            return await self._client.xinfo_stream(self._stream)
        except ResponseError:
            return {}  # nothing was written yet

    async def _copy_for_ever(self) -> None:
        last = "0-0"
        while True:
            answer: Any = await self._client.execute_command(
                "XREAD", "COUNT", 1000, "BLOCK", 1000, "STREAMS", self._stream, last
            )
            for entry_id, pairs in answer[0][1] if answer else ():
                last = entry_id.decode()
                self.entry_ids.append(last)
                self.happenings.extend(parse(pairs))


def _as_it_came(answer: Any, **_: Any) -> Any:
    return answer


def parse(pairs: list[bytes]) -> Iterator[Happening]:
    """`now_ms`, `epoch`, then an id and a record an event, and `<id>:body` after it where something came along."""
    fields = list(zip(pairs[::2], pairs[1::2], strict=True))
    now_ms, epoch = int(fields[0][1]), int(fields[1][1])
    for place, (name, value) in enumerate(fields[2:], 3):
        if b":" not in name:
            follows = fields[place] if place < len(fields) else (b"", b"")
            body = follows[1].decode() if follows[0] == name + b":body" else None
            yield _happening(name.decode(), epoch, now_ms, value.decode().split("\0")[1:], body)


def _happening(task_id: str, epoch: int, now_ms: int, record: list[str], body: str | None) -> Happening:
    is_result = record[STATE] == "completed"
    event = Event(
        task_id,
        epoch,
        int(record[VERSION]),
        now_ms,
        record[STATE],
        record[REASON] or "submitted",
        int(record[ATTEMPT]),
        record[WORKER] or None,
        None if is_result else body,
    )
    return Happening(event, body if is_result else None, int(record[ENDED]) if record[ENDED] else None)


def stories_of(happenings: Iterable[Happening]) -> dict[str, list[Happening]]:
    """By task, in order; what was purged has none."""
    stories: dict[str, list[Happening]] = {}
    for happening in happenings:
        if happening.event.reason == "purged":
            stories.pop(happening.event.task_id, None)
        else:
            stories.setdefault(happening.event.task_id, []).append(happening)
    return stories
