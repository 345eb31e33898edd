"""Several processes behind one listening socket: a parent that starts them, replaces those that die, and stops them.

Children are forked before anything runs, so they share what the parent has imported and a new one is there in
milliseconds. They end with the parent, however that ends. The parent answers no request and opens no store.
"""

import asyncio
import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import NoReturn

import structlog

STOP_SECONDS = 8.0
"""More than a child's own limit for what is under way; with what follows, less than the ten seconds promised."""
AT_ONCE_SECONDS = 1.0
SETTLED_SECONDS = 1.0
"""One that lived longer is replaced without delay: even if it dies again and again, that is no busy loop."""
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.1, 5.0
READY = b"\0"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
WATCHED = (*STOP_SIGNALS, signal.SIGCHLD)

Work = Callable[[Callable[[], None]], None]
"""What a child does; it is given what to call, from its loop, once it takes work."""

log = structlog.get_logger(__name__)


@dataclass
class ServiceProcess:
    pid: int
    began: float


class Parent:
    def __init__(self, count: int, work: Work, on_ready: Callable[[], None], on_stop: Callable[[], None]) -> None:
        self._count = count
        self._work = work
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._children: dict[int, ServiceProcess] = {}
        self._ready_count = 0
        self._early_deaths = 0
        self._next_start = 0.0
        self._deadline: float | None = None
        self._status = 0
        self._tether, self._held_end = os.pipe()
        """Children read the one end and never get anything but its end: then the parent has gone."""

    def run(self) -> int:
        """Until a signal and all have ended; the exit status."""
        gc.collect()
        gc.freeze()
        with _bell() as (self._bell, self._ringer):
            while self._deadline is None or self._children:
                self._start_missing()
                for number in self._wait():
                    self._hear(number)
                self._bury()
                self._hurry()
        return self._status

    @property
    def _missing_count(self) -> int:
        """The first one starts alone: what keeps it from starting is then said once, and is the end."""
        wanted = self._count if self._ready_count else 1
        return 0 if self._deadline is not None else wanted - len(self._children)

    def _start_missing(self) -> None:
        while self._missing_count and time.monotonic() >= self._next_start:
            child = ServiceProcess(self._fork(), time.monotonic())
            self._children[child.pid] = child

    def _wait(self) -> bytes:
        """For signals, by number, and for children that are ready."""
        due = self._next_start if self._missing_count else self._deadline
        timeout = None if due is None else max(due - time.monotonic(), 0.01)
        readable, _, _ = select.select([self._bell], [], [], timeout)
        return self._bell.recv(4_096) if readable else b""

    def _hear(self, number: int) -> None:
        if number == READY[0]:
            self._ready_count += 1
            if self._ready_count == self._count:
                self._on_ready()
        elif number in STOP_SIGNALS:
            self._stop(signal.Signals(number))

    def _stop(self, number: signal.Signals) -> None:
        """A second signal is passed on too, and ends the children at once."""
        seconds = STOP_SECONDS if self._deadline is None else AT_ONCE_SECONDS
        if self._deadline is None:
            self._on_stop()
        self._deadline = time.monotonic() + seconds
        for pid in self._children:
            os.kill(pid, number)

    def _bury(self) -> None:
        for pid in list(self._children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self._replace(self._children.pop(pid), os.waitstatus_to_exitcode(status))

    def _replace(self, child: ServiceProcess, status: int) -> None:
        if self._deadline is not None:
            return
        if not self._ready_count:
            self._status = status if status > 0 else 1
            self._deadline = time.monotonic()
            return
        is_early = time.monotonic() - child.began < SETTLED_SECONDS
        self._early_deaths = self._early_deaths + 1 if is_early else 0
        delay = min(FIRST_DELAY_SECONDS * 2**self._early_deaths, MAX_DELAY_SECONDS) if is_early else 0.0
        self._next_start = time.monotonic() + delay
        log.warning("a process ended and is replaced", pid=child.pid, status=status, in_seconds=delay)

    def _hurry(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._status = self._status or int(bool(self._children))
            for pid in self._children:
                os.kill(pid, signal.SIGKILL)

    def _fork(self) -> int:
        """Signals wait until the child has its own way of dealing with them."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        try:
            pid = os.fork()
            if pid == 0:
                self._be_child()
            return pid
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)

    def _be_child(self) -> NoReturn:
        status = 1
        try:
            # A group of its own: Ctrl-C reaches the parent alone, which passes it on once.
            os.setpgid(0, 0)
            _forget_signals()
            os.close(self._held_end)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
            self._work(self._report_ready)
            status = 0
        except SystemExit as end:
            status = _status_of(end)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _report_ready(self) -> None:
        loop = asyncio.get_running_loop()

        def end_too() -> None:
            loop.remove_reader(self._tether)
            os.kill(os.getpid(), signal.SIGTERM)

        loop.add_reader(self._tether, end_too)
        self._ringer.send(READY)


@contextmanager
def _bell() -> Generator[tuple[socket.socket, socket.socket]]:
    """Rings for every watched signal, with its number."""
    bell, ringer = socket.socketpair()
    ringer.setblocking(False)
    before = {number: signal.signal(number, lambda _number, _frame: None) for number in WATCHED}
    with closing(bell), closing(ringer):
        signal.set_wakeup_fd(ringer.fileno(), warn_on_full_buffer=False)
        try:
            yield bell, ringer
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)


def _forget_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in WATCHED:
        signal.signal(number, signal.SIG_DFL)


def _status_of(end: SystemExit) -> int:
    if isinstance(end.code, str):
        sys.stderr.write(f"{end.code}\n")
        return 1
    return end.code or 0
