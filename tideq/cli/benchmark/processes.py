"""Starts the processes of a run, sends them orders and collects their reports."""

import contextlib
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import msgspec

from tideq.cli.benchmark.messages import (
    BenchProgress,
    BenchSubmitted,
    BenchTarget,
    Failed,
    Order,
    Pace,
    Ready,
    Report,
    Rest,
    Work,
    Worked,
)
from tideq.client import CannotConnect, TideqError
from tideq.client.error_mapping import refusal

STALL_SECONDS = 60.0
"""The run is given up after this time without progress."""
CHECK_AFTER_SECONDS = 2.0
"""After this time without progress, the service is called to see whether it still answers."""
LEAVE_SECONDS = 10.0
REFUSED = 400

T = TypeVar("T")
Advance = Callable[[int], None]
_decode = msgspec.json.Decoder(Report).decode


class GaveUp(TideqError):
    """The run cannot go on, although the service refused nothing."""


class BenchProcess:
    """A child in a process group of its own: Ctrl-C reaches only the parent, which ends the children in order."""

    def __init__(
        self, role: Literal["load", "work"], target: BenchTarget, on_report: Callable[["BenchProcess", Report], None]
    ) -> None:
        command = [sys.executable, "-P", "-m", "tideq.cli.benchmark.child", role]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        self._on_report = on_report
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._write(msgspec.json.encode(target))

    def send(self, order: Order) -> None:
        self._write(msgspec.json.encode(order))

    def close_orders(self) -> None:
        """A worker then releases its tasks and deregisters."""
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def end(self, deadline: float = 0.0) -> None:
        """Waits until the deadline, then kills the process."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(deadline - time.monotonic(), 0))
        self._process.kill()
        self._process.wait()
        self.close_orders()
        self._reader.join()

    def _write(self, line: bytes) -> None:
        """Ignores a process that has died; its reader reports the end."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._on_report(self, _decode(line))
        self._on_report(self, Failed(0, ""))


class ProcessGroup:
    """`check` raises where the service does not answer; workers alone would wait for it without end."""

    def __init__(self, target: BenchTarget, load_count: int, worker_count: int, check: Callable[[], None]) -> None:
        self._check = check
        self._reports = queue.SimpleQueue[tuple[BenchProcess, Report]]()
        self._all: list[BenchProcess] = []
        self.loaders = self._start("load", target, load_count)
        self.workers = self._start("work", target, worker_count)

    def wait_until_ready(self) -> None:
        self._answers(self._all, Ready)

    def load(self, orders: Sequence[Order], advance: Advance) -> list[BenchSubmitted]:
        """Sends one order to each of the first submitting processes; returns their reports."""
        chosen = self.loaders[: len(orders)]
        for child, order in zip(chosen, orders, strict=True):
            child.send(order)
        return self._answers(chosen, BenchSubmitted, advance)

    def work(self, worker_count: int, task_count: int, advance: Advance) -> list[Worked]:
        """Runs these workers until they have completed `task_count` tasks, and those they hold by then."""
        chosen = self._begin_work(worker_count)
        self._until(chosen, task_count, advance)
        return self._end_work(chosen)

    def work_beside(
        self, worker_count: int, order: Pace, advance: Advance
    ) -> tuple[list[BenchSubmitted], list[Worked]]:
        """Runs workers while `order` submits the tasks they wait for."""
        chosen = self._begin_work(worker_count)
        submitted = self.load([order], advance)
        self._until(chosen, order.count, lambda count: None)
        return submitted, self._end_work(chosen)

    def _begin_work(self, worker_count: int) -> list[BenchProcess]:
        chosen = self.workers[:worker_count]
        for child in chosen:
            child.send(Work())
        return chosen

    def _end_work(self, chosen: Sequence[BenchProcess]) -> list[Worked]:
        for child in chosen:
            child.send(Rest())
        return self._answers(chosen, Worked)

    def end(self) -> None:
        """Ends workers in order, as far as the time allows; submitting processes hold no tasks and are killed."""
        for child in self.loaders:
            child.end()
        for child in self.workers:
            child.close_orders()
        deadline = time.monotonic() + LEAVE_SECONDS
        for child in self.workers:
            child.end(deadline)

    def _start(self, role: Literal["load", "work"], target: BenchTarget, count: int) -> list[BenchProcess]:
        started = [
            BenchProcess(role, target, lambda child, report: self._reports.put((child, report))) for _ in range(count)
        ]
        self._all += started
        return started

    def _until(self, chosen: Sequence[BenchProcess], task_count: int, advance: Advance) -> None:
        done, best, moved_at, checked_at = dict[BenchProcess, int](), 0, time.monotonic(), time.monotonic()
        while best < task_count:
            child, report = self._next(chosen)
            if isinstance(report, Failed):
                raise _error(report)
            done[child] = report.count if isinstance(report, BenchProgress) else 0
            now = time.monotonic()
            if sum(done.values()) > best:
                best, moved_at, checked_at = sum(done.values()), now, now
                advance(min(best, task_count))
            elif now - moved_at > STALL_SECONDS:
                raise GaveUp(f"{task_count - best} tasks wait and no task was completed for {STALL_SECONDS:.0f} s")
            elif now - checked_at > CHECK_AFTER_SECONDS:
                checked_at = now
                self._check()

    def _answers(self, chosen: Sequence[BenchProcess], kind: type[T], advance: Advance = lambda count: None) -> list[T]:
        """Collects all answers before it raises: a late answer would be taken for the answer to the next order."""
        found, failed, counts = dict[BenchProcess, T](), dict[BenchProcess, Failed](), dict[BenchProcess, int]()
        while len({*found, *failed}) < len(chosen):
            child, report = self._next(chosen)
            if isinstance(report, kind):
                found[child] = report
            elif isinstance(report, Failed):
                failed[child] = report
            elif isinstance(report, BenchProgress):
                counts[child] = report.count
                advance(sum(counts.values()))
        for failure in failed.values():
            raise _error(failure)
        return list(found.values())

    def _next(self, chosen: Sequence[BenchProcess]) -> tuple[BenchProcess, Report]:
        deadline = time.monotonic() + STALL_SECONDS
        while True:
            try:
                child, report = self._reports.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise GaveUp(f"no process reported anything for {STALL_SECONDS:.0f} s") from None
            if child in chosen:
                return child, report


def _error(failure: Failed) -> TideqError:
    if failure.status >= REFUSED:
        return refusal(failure.status, failure.message.encode())
    if not failure.message:
        return GaveUp("a process of the benchmark ended; its error is above")
    return CannotConnect(f"the service stopped answering during the run: {failure.message}")
