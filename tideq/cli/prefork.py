"""Runs several processes behind one listening socket: the parent starts, replaces and stops its children.

The parent forks after the imports and before any event loop runs, so a child starts within milliseconds. Children end
when the parent ends, also after SIGKILL. The parent answers no request and opens no store.
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
"""More than a child's own limit for running requests; in all, less than the promised ten seconds."""
SECOND_SIGNAL_SECONDS = 1.0
EARLY_DEATH_SECONDS = 1.0
"""A child that lived longer is replaced without delay; restarting it again and again is no busy loop."""
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.1, 5.0
READY = b"\0"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
WATCHED = (*STOP_SIGNALS, signal.SIGCHLD)

Work = Callable[[Callable[[], None]], None]
"""The work of a child. Its argument must be called from the child's event loop when the child is ready."""

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
        self._parent_pipe, self._parent_write_end = os.pipe()
        """Nothing is ever written to this pipe: a child that reads its end of file has lost its parent."""

    def run(self) -> int:
        """Runs until a signal arrives and all children have ended; returns the exit status."""
        gc.collect()
        gc.freeze()
        with _signal_socket() as (self._signals, self._notifier):
            while self._deadline is None or self._children:
                self._start_missing()
                for number in self._wait():
                    self._handle(number)
                self._reap()
                self._kill_after_deadline()
        return self._status

    @property
    def _missing_count(self) -> int:
        """The first child starts alone, so that a failure to start is reported once, and ends the parent."""
        wanted = self._count if self._ready_count else 1
        return 0 if self._deadline is not None else wanted - len(self._children)

    def _start_missing(self) -> None:
        while self._missing_count and time.monotonic() >= self._next_start:
            child = ServiceProcess(self._fork(), time.monotonic())
            self._children[child.pid] = child

    def _wait(self) -> bytes:
        """Returns the numbers of signals received, and READY for each child that is ready."""
        due = self._next_start if self._missing_count else self._deadline
        timeout = None if due is None else max(due - time.monotonic(), 0.01)
        readable, _, _ = select.select([self._signals], [], [], timeout)
        return self._signals.recv(4_096) if readable else b""

    def _handle(self, number: int) -> None:
        if number == READY[0]:
            self._ready_count += 1
            if self._ready_count == self._count:
                self._on_ready()
        elif number in STOP_SIGNALS:
            self._stop(signal.Signals(number))

    def _stop(self, number: signal.Signals) -> None:
        """Passes each signal on; a second one ends the children at once."""
        seconds = STOP_SECONDS if self._deadline is None else SECOND_SIGNAL_SECONDS
        if self._deadline is None:
            self._on_stop()
        self._deadline = time.monotonic() + seconds
        for pid in self._children:
            os.kill(pid, number)

    def _reap(self) -> None:
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
        is_early = time.monotonic() - child.began < EARLY_DEATH_SECONDS
        self._early_deaths = self._early_deaths + 1 if is_early else 0
        delay = min(FIRST_DELAY_SECONDS * 2**self._early_deaths, MAX_DELAY_SECONDS) if is_early else 0.0
        self._next_start = time.monotonic() + delay
        log.warning("process replaced", pid=child.pid, status=status, in_seconds=delay)

    def _kill_after_deadline(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._status = self._status or int(bool(self._children))
            for pid in self._children:
                os.kill(pid, signal.SIGKILL)

    def _fork(self) -> int:
        """Blocks signals until the child has reset its handlers."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        try:
            pid = os.fork()
            if pid == 0:
                self._run_child()
            return pid
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)

    def _run_child(self) -> NoReturn:
        status = 1
        try:
            # A process group of its own: Ctrl-C reaches only the parent, which passes it on once.
            os.setpgid(0, 0)
            _reset_signal_handlers()
            os.close(self._parent_write_end)
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

        def end_with_parent() -> None:
            loop.remove_reader(self._parent_pipe)
            os.kill(os.getpid(), signal.SIGTERM)

        loop.add_reader(self._parent_pipe, end_with_parent)
        self._notifier.send(READY)


@contextmanager
def _signal_socket() -> Generator[tuple[socket.socket, socket.socket]]:
    """A socket pair; the first end receives the number of every watched signal."""
    signals, notifier = socket.socketpair()
    notifier.setblocking(False)
    before = {number: signal.signal(number, lambda _number, _frame: None) for number in WATCHED}
    with closing(signals), closing(notifier):
        signal.set_wakeup_fd(notifier.fileno(), warn_on_full_buffer=False)
        try:
            yield signals, notifier
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)


def _reset_signal_handlers() -> None:
    signal.set_wakeup_fd(-1)
    for number in WATCHED:
        signal.signal(number, signal.SIG_DFL)


def _status_of(end: SystemExit) -> int:
    if isinstance(end.code, str):
        sys.stderr.write(f"{end.code}\n")
        return 1
    return end.code or 0
