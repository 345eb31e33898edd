"""An answer's head and what follows it at once leave in one write.

uvicorn writes them one after the other. The first write wakes the caller, which on a machine with few cores takes the
server's place there, finds half an answer and goes back to sleep, before the server gets to the second.
"""

import asyncio


class InOneWrite:
    """A connection as one answer sees it: what is written first is its head."""

    __slots__ = ("_has_begun", "_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None
        self._has_begun = False

    def write(self, data: bytes) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self._transport.writelines((head, data))
        elif self._has_begun:
            self._transport.write(data)
        else:
            self._has_begun, self._head = True, data
            # A stream's first part may be long in coming, and its reader waits for the head.
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self._transport.write(head)
