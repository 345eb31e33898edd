"""One connection that every script call of a process shares, in the order they are made.

For each command the driver takes a connection out of its pool, locks it, waits, dispatches events and puts it back: 65
to 80 µs of CPU for an empty script, where this takes 14 to 24. The driver still makes the connection: it finds the
server, logs in and checks who that is. Then the connection's bytes are read and written here.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import hiredis
import redis.asyncio as redis
from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import InvalidResponse, ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as TooLate

untyped: Any = hiredis
NOT_ENOUGH = object()


class Asked(NamedTuple):
    answer: "asyncio.Future[Any]"
    until: float
    """By the loop's clock."""


class StoreClient(redis.Redis):
    """The driver's client, which has a line beside its pool."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._line: Line | None = None
        self._former: list[Line] = []
        self._opening = asyncio.Lock()

    async def ask(self, *words: Any) -> Any:
        """A command that does not wait. As with the driver's own, one that fails may have been done."""
        line = self._line
        if line is None or line.is_over:
            line = await self._open()
        return await line.ask(words)

    def renew_line(self) -> None:
        """What is asked from here on goes to whoever the address means by then."""
        if self._line is not None:
            self._line.retire()

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        self.renew_line()
        await super().aclose(close_connection_pool)

    async def _open(self) -> "Line":
        async with self._opening:
            if self._line is not None and not self._line.is_over:
                return self._line
            if self._line is not None:
                self._former.append(self._line)
                self._line = None
            await self._put_away()
            self._line = Line(await cast("Any", self.connection_pool).get_connection())
            return self._line

    async def _put_away(self) -> None:
        """Connections of lines that are over and owe no answers: back to the pool, which may open them again."""
        done = [line for line in self._former if not line.owes_answers]
        self._former = [line for line in self._former if line.owes_answers]
        for line in done:
            await line.end()
            await cast("Any", self.connection_pool).release(line.connection)


class Line(asyncio.Protocol):
    """`connection` is the driver's, connected; its stream is told when it ends, and of nothing else."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.is_over = False
        """Nothing more may be asked."""
        self._loop = asyncio.get_running_loop()
        self._timeout = connection.socket_timeout
        self._asked: deque[Asked] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._reader: Any = untyped.Reader(
            protocolError=InvalidResponse, replyError=cast("Any", BaseParser).parse_error, notEnoughData=NOT_ENOUGH
        )
        self._transport: Any = connection._writer.transport
        self._stream: Any = self._transport.get_protocol()
        self._transport.set_protocol(self)

    def ask(self, words: Sequence[Any]) -> "asyncio.Future[Any]":
        asked = Asked(self._loop.create_future(), self._loop.time() + self._timeout)
        if self._transport.is_closing():
            self._give_up(ConnectionLost("the connection was closed"))
            raise ConnectionLost("the connection was closed")
        self._transport.write(b"".join(self.connection.pack_command(*words)))
        self._asked.append(asked)
        if self._timer is None:
            self._timer = self._loop.call_at(asked.until, self._look_at_the_clock)
        return asked.answer

    def retire(self) -> None:
        """Whatever has been asked is still answered."""
        self.is_over = True
        if not self._asked:
            self._close()

    @property
    def owes_answers(self) -> bool:
        return bool(self._asked)

    async def end(self) -> None:
        self._close()
        with contextlib.suppress(RedisError):
            await self.connection.disconnect()

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not NOT_ENOUGH:
                if not isinstance(reply, untyped.PushNotification):
                    self._answer(reply)
        except (InvalidResponse, IndexError) as error:
            self._give_up(ConnectionLost(f"the server does not speak as expected: {error}"))
        if self.is_over and not self._asked:
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._give_up(ConnectionLost(f"connection closed by the server: {exc}"))
        self._stream.connection_lost(exc)

    def _answer(self, reply: Any) -> None:
        answer = self._asked.popleft().answer
        if isinstance(reply, ReadOnlyError):
            # It is no primary any more: who is by now, the next connection finds out.
            self.is_over = True
        if answer.done():
            return
        if isinstance(reply, RedisError):
            answer.set_exception(reply)
        else:
            answer.set_result(reply)

    def _look_at_the_clock(self) -> None:
        """One timer for all that is asked: the oldest is the first to be late, and the rest waits behind it."""
        self._timer = None
        if self._asked and self._asked[0].until <= self._loop.time():
            self._give_up(TooLate(f"no answer within {self._timeout:g} s"))
        elif self._asked:
            self._timer = self._loop.call_at(self._asked[0].until, self._look_at_the_clock)

    def _give_up(self, error: RedisError) -> None:
        self.is_over = True
        while self._asked:
            answer = self._asked.popleft().answer
            if not answer.done():
                answer.set_exception(error)
        self._close()

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport.close()
