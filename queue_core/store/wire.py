"""A connection that the driver made and whose bytes are read here, past the driver's own way of reading.

The driver finds the server, logs in and checks who that is. Then its stream is told when the connection ends, and of
nothing else.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import hiredis
from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import InvalidResponse, RedisError

untyped: Any = hiredis
NOT_ENOUGH = object()


class Wire(asyncio.Protocol, ABC):
    """`connection` is the driver's, connected."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._is_aborted = False
        self._reader: Any = untyped.Reader(
            protocolError=InvalidResponse, replyError=cast("Any", BaseParser).parse_error, notEnoughData=NOT_ENOUGH
        )
        self._transport: Any = connection._writer.transport
        self._stream: Any = self._transport.get_protocol()
        self._transport.set_protocol(self)

    @property
    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def send(self, words: Sequence[Any]) -> None:
        self._transport.write(b"".join(self.connection.pack_command(*words)))

    @abstractmethod
    def hear(self, reply: Any) -> None:
        """An answer or an error, or what the server says by itself."""

    @abstractmethod
    def give_up(self, error: RedisError) -> None:
        """Nothing more will be heard, for this reason; may be called again."""

    def close(self) -> None:
        """Once the server has read what was sent."""
        self._transport.close()

    def abort(self) -> None:
        """Once: with TLS uvloop has no connection left to abort a second time, and says so by an AttributeError."""
        if not self._is_aborted:
            self._is_aborted = True
            self._transport.abort()

    async def end(self) -> None:
        self.abort()
        with contextlib.suppress(RedisError):
            await self.connection.disconnect()

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not NOT_ENOUGH:
                self.hear(reply)
        except InvalidResponse as error:
            self.give_up(ConnectionLost(f"the server does not speak as expected: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_aborted = True
        self.give_up(ConnectionLost(f"connection closed by the server: {exc}"))
        self._stream.connection_lost(exc)


def is_unasked(reply: Any) -> bool:
    return isinstance(reply, untyped.PushNotification)
