"""One connection that the script calls of a process share, in the order they are made, and one beside it for bulk.

Whatever may be answered with megabytes is asked on the second, so that no heartbeat waits behind it.

For each command the driver takes a connection out of its pool, locks it, waits, dispatches events and puts it back: 65
to 80 µs of CPU for an empty script, where this takes 14 to 24.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import redis.asyncio as redis
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as TooLate

from tideq.queue_core.store.wire import Wire, is_unasked


class Asked(NamedTuple):
    answer: "asyncio.Future[Any]"
    until: float
    """By the loop's clock."""


class StoreClient(redis.Redis):
    """The driver's client, which has a line beside its pool."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._lines: dict[bool, Line] = {}
        """The one for small answers, and the one for bulk."""
        self._former: list[Line] = []
        self._opening = asyncio.Lock()

    async def ask(self, *words: Any, is_bulk: bool = False) -> Any:
        """A command that does not wait. As with the driver's own, one that fails may have been done."""
        line = self._lines.get(is_bulk)
        if line is None or not line.is_open:
            line = await self._open(is_bulk)
        return await line.ask(words)

    def renew_lines(self) -> None:
        """What is asked from here on goes to whoever the address means by then."""
        for line in self._lines.values():
            line.retire()

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        self.renew_lines()
        await super().aclose(close_connection_pool)

    async def _open(self, is_bulk: bool) -> "Line":
        async with self._opening:
            line = self._lines.get(is_bulk)
            if line is not None and line.is_open:
                return line
            if line is not None:
                self._former.append(self._lines.pop(is_bulk))
            await self._put_away()
            line = self._lines[is_bulk] = Line(await cast("Any", self.connection_pool).get_connection())
            return line

    async def _put_away(self) -> None:
        """Connections of lines that are over and owe no answers: back to the pool, which may open them again."""
        done = [line for line in self._former if not line.owes_answers]
        self._former = [line for line in self._former if line.owes_answers]
        for line in done:
            await line.end()
            await cast("Any", self.connection_pool).release(line.connection)


class Line(Wire):
    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._is_over = False
        """Nothing more may be asked."""
        self._loop = asyncio.get_running_loop()
        self._timeout = connection.socket_timeout
        self._asked: deque[Asked] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, words: Sequence[Any]) -> "asyncio.Future[Any]":
        self.send(words)
        asked = Asked(self._loop.create_future(), self._loop.time() + self._timeout)
        self._asked.append(asked)
        if self._timer is None:
            self._timer = self._loop.call_at(asked.until, self._look_at_the_clock)
        return asked.answer

    @property
    def is_open(self) -> bool:
        return not (self._is_over or self.is_closing)

    def retire(self) -> None:
        """Whatever has been asked is still answered."""
        self._is_over = True
        if not self._asked:
            self.close()

    @property
    def owes_answers(self) -> bool:
        return bool(self._asked)

    def hear(self, reply: Any) -> None:
        if is_unasked(reply):
            return
        if not self._asked:
            self.give_up(ConnectionLost("the server answers what nobody asked"))
            return
        answer = self._asked.popleft().answer
        if isinstance(reply, ReadOnlyError):
            # It is no primary any more: who is by now, the next connection finds out.
            self._is_over = True
        if not answer.done():
            if isinstance(reply, RedisError):
                answer.set_exception(reply)
            else:
                answer.set_result(reply)
        if self._is_over and not self._asked:
            self.close()

    def give_up(self, error: RedisError) -> None:
        self._is_over = True
        while self._asked:
            answer = self._asked.popleft().answer
            if not answer.done():
                answer.set_exception(error)
        # Closing would wait until a silent server has read what is left, and whoever comes next with it.
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _look_at_the_clock(self) -> None:
        """One timer for all that is asked: the oldest is the first to be late, and the rest waits behind it."""
        self._timer = None
        if self._asked and self._asked[0].until <= self._loop.time():
            self.give_up(TooLate(f"no answer within {self._timeout:g} s"))
        elif self._asked:
            self._timer = self._loop.call_at(self._asked[0].until, self._look_at_the_clock)
