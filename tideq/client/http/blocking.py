"""Connections for code that waits; threads may share them."""

import contextlib
import os
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable

from tideq.client.http.address import ServiceAddress
from tideq.client.http.answers import Response, ResponseParser
from tideq.client.http.exchange_failures import ExchangeFailed, Lost, Stale, Unsent
from tideq.client.http.readable import is_readable
from tideq.client.http.timeouts import Timeouts

MAX_IDLE = 20
IDLE_SECONDS = 5.0
READ_BYTES = 65_536


class Pool:
    """One server, as many connections as there are requests at a time, kept for the next ones."""

    def __init__(self, address: ServiceAddress, trust: Callable[[], ssl.SSLContext], max_connections: int) -> None:
        self._address = address
        self._trust = trust
        self._tls: ssl.SSLContext | None = None
        self._max_connections = max_connections
        self._is_closed = False
        self._idle = deque[_Connection]()
        self._begin()

    @staticmethod
    def fits_here() -> bool:
        return True

    def ask(self, message: bytes, timeouts: Timeouts, *, is_repeatable: bool = True) -> Response:
        """Raises a Failure. What must not be sent twice gets a new connection: a kept one may be about to end."""
        self._refuse_if_closed()
        if self._process != os.getpid():
            self._begin()
        slots = self._slots
        if not slots.acquire(timeout=timeouts.pool):
            raise Unsent(f"all {self._max_connections} connections were busy for {timeouts.pool:g} s")
        try:
            while connection := self._take():
                if not is_repeatable:
                    connection.close()
                    break
                return self._exchange(connection, message, timeouts)
            return self._exchange(self._connect(timeouts.connect), message, timeouts)
        finally:
            slots.release()

    def close(self) -> None:
        """What is under way in other threads ends with its answer; who still waits for a connection is told."""
        self._is_closed = True
        while connection := self._take():
            connection.close()

    def _begin(self) -> None:
        """Also after a fork: connections and locks are the parent's."""
        for connection in self._idle:
            connection.close()
        self._process = os.getpid()
        self._idle = deque[_Connection]()
        self._slots = threading.Semaphore(self._max_connections)

    def _take(self) -> "_Connection | None":
        """The one used last, which is the one most likely still there."""
        while self._idle:
            with contextlib.suppress(IndexError):  # another thread was faster
                connection = self._idle.pop()
                if connection.is_usable:
                    return connection
                connection.close()
        return None

    def _refuse_if_closed(self) -> None:
        """Asked again after everything that is waited for: meanwhile it may have been closed."""
        if self._is_closed:
            raise RuntimeError("the client is closed")

    def _connect(self, seconds: float) -> "_Connection":
        self._refuse_if_closed()
        where = self._address.host, self._address.port
        try:
            plain = socket.create_connection(where, seconds)
            try:
                return _Connection(self._secured(plain) if self._address.is_secure else plain, seconds)
            except BaseException:
                plain.close()
                raise
        except TimeoutError as error:
            raise Unsent(f"no connection to {where[0]} port {where[1]} within {seconds:g} s") from error
        except (OSError, UnicodeError) as error:
            raise Unsent(str(error) or type(error).__name__) from error

    def _secured(self, plain: socket.socket) -> socket.socket:
        self._tls = self._tls or self._trust()
        return self._tls.wrap_socket(plain, server_hostname=self._address.host)

    def _exchange(self, connection: "_Connection", message: bytes, timeouts: Timeouts) -> Response:
        """One that is broken off takes its connection with it, lest its answer be taken for the next one's."""
        process = self._process
        try:
            self._refuse_if_closed()
            answer = connection.ask(message, timeouts)
        except BaseException:
            connection.close()
            raise
        if connection.is_reusable and len(self._idle) < MAX_IDLE and not self._is_closed and process == self._process:
            self._idle.append(connection)
        else:
            connection.close()
        return answer


class _Connection:
    """One request at a time."""

    def __init__(self, link: socket.socket, seconds: float) -> None:
        self.is_reusable = False
        self._link = link
        self._seconds = seconds
        self._used_at = 0.0
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def is_usable(self) -> bool:
        """It did not rest too long, and there is nothing to read: neither its end nor what nobody asked for."""
        return time.monotonic() - self._used_at < IDLE_SECONDS and not is_readable(self._link.fileno())

    def ask(self, message: bytes, timeouts: Timeouts) -> Response:
        is_kept, self.is_reusable = self.is_reusable, False
        parser = ResponseParser()
        try:
            is_sent = self._send(message, timeouts.write)
            answer = self._receive(parser, timeouts.read)
        except ExchangeFailed:
            raise
        except OSError as error:
            kind = Stale if is_kept and not parser.has_begun else Lost
            raise kind(str(error) or type(error).__name__) from error
        self.is_reusable, self._used_at = is_sent and not parser.is_last, time.monotonic()
        return answer

    def close(self) -> None:
        self._link.close()

    def _send(self, message: bytes, seconds: float) -> bool:
        """Whether all of it left: a server that has seen enough may answer and close."""
        self._wait_at_most(seconds)
        left = memoryview(message)
        try:
            while left:
                left = left[self._link.send(left) :]
        except TimeoutError:
            raise Lost(f"it did not take the request within {seconds:g} s") from None
        except OSError:
            return False
        return True

    def _receive(self, parser: ResponseParser, seconds: float) -> Response:
        self._wait_at_most(seconds)
        while parser.answer is None:
            try:
                data = self._link.recv(READ_BYTES)
            except TimeoutError:
                raise Lost(f"it did not answer within {seconds:g} s") from None
            if not (parser.feed(data) if data else parser.end()) and not data:
                raise ConnectionError("the connection ended before the answer")
        return parser.answer

    def _wait_at_most(self, seconds: float) -> None:
        if seconds != self._seconds:
            self._link.settimeout(seconds)
            self._seconds = seconds
