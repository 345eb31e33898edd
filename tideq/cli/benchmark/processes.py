"""Starts the processes of a run, sends them orders and collects their reports."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Literal, NamedTuple, TypeVar, cast

from tideq.cli.benchmark.children import (
    BenchSubmitted,
    BenchTarget,
    Failed,
    Order,
    Pace,
    Report,
    Submit,
    Worked,
    run_child,
)
from tideq.client import CannotConnect, TideqError
from tideq.client.error_mapping import refusal

STALL_SECONDS = 60.0
"""The run is given up after this time without progress."""
CHECK_AFTER_SECONDS = 2.0
"""After this time without progress, the service is called to see whether it still answers."""
LEAVE_SECONDS = 10.0

T = TypeVar("T")
Advance = Callable[[int], None]


class GaveUp(TideqError):
    """The run cannot go on, although the service refused nothing."""


class Child(NamedTuple):
    process: BaseProcess
    pipe: Connection


class ProcessGroup:
    """`check` raises where the service does not answer; workers alone would wait for it without end."""

    def __init__(self, target: BenchTarget, load_count: int, worker_count: int, check: Callable[[], None]) -> None:
        self._target, self._check = target, check
        # Children inherit it: Ctrl-C reaches only the parent, which ends them in order.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._loaders = [self._start("load") for _ in range(load_count)]
            self._workers = [self._start("work") for _ in range(worker_count)]
        finally:
            signal.signal(signal.SIGINT, handler)

    def wait_until_ready(self) -> None:
        self._answers((*self._loaders, *self._workers), str)

    def load(self, orders: Sequence[Submit | Pace], advance: Advance) -> list[BenchSubmitted]:
        """Sends one order to each of the first submitting processes; returns their reports."""
        chosen = self._loaders[: len(orders)]
        for child, order in zip(chosen, orders, strict=True):
            _send(child, order)
        return self._answers(chosen, BenchSubmitted, advance)

    def work(
        self, worker_count: int, task_count: int, advance: Advance, beside: Pace | None = None
    ) -> tuple[list[Worked], list[BenchSubmitted]]:
        """Runs workers until they have completed `task_count` tasks and those they hold by then.

        `beside` submits the tasks meanwhile.
        """
        chosen = self._workers[:worker_count]
        for child in chosen:
            _send(child, "work")
        submitted = self.load([beside], advance) if beside else []
        self._wait_until_done(chosen, task_count, advance)
        for child in chosen:
            _send(child, "rest")
        return self._answers(chosen, Worked), submitted

    def end(self) -> None:
        """Ends workers in order, as far as the time allows; submitting processes hold no tasks and are killed."""
        for child in self._workers:
            child.pipe.close()
        deadline = time.monotonic() + LEAVE_SECONDS
        for child in (*self._loaders, *self._workers):
            child.process.join(0 if child in self._loaders else max(deadline - time.monotonic(), 0))
            child.process.kill()
            child.process.join()

    def _start(self, role: Literal["load", "work"]) -> Child:
        context = multiprocessing.get_context("spawn")
        ours, theirs = cast("tuple[Connection, Connection]", context.Pipe())
        process = context.Process(target=run_child, args=(role, self._target, theirs), daemon=True)
        process.start()
        theirs.close()
        return Child(process, ours)

    def _wait_until_done(self, chosen: Sequence[Child], task_count: int, advance: Advance) -> None:
        done, best, moved_at, checked_at = dict[Child, int](), 0, time.monotonic(), time.monotonic()
        reports = self._reports(chosen)
        while best < task_count:
            child, report = next(reports)
            done[child] = report if isinstance(report, int) else 0
            now = time.monotonic()
            if sum(done.values()) > best:
                best, moved_at, checked_at = sum(done.values()), now, now
                advance(min(best, task_count))
            elif now - moved_at > STALL_SECONDS:
                raise GaveUp(f"{task_count - best} tasks wait and no task was completed for {STALL_SECONDS:.0f} s")
            elif now - checked_at > CHECK_AFTER_SECONDS:
                checked_at = now
                self._check()

    def _answers(self, chosen: Sequence[Child], kind: type[T], advance: Advance = lambda count: None) -> list[T]:
        """Collects all answers before it raises: a late answer would be taken for the answer to the next order."""
        found, failed, counts = dict[Child, T](), dict[Child, Failed](), dict[Child, int]()
        reports = self._reports(chosen)
        while len({*found, *failed}) < len(chosen):
            child, report = next(reports)
            if isinstance(report, kind):
                found[child] = report
            elif isinstance(report, Failed):
                failed[child] = report
            elif isinstance(report, int):
                counts[child] = report
                advance(sum(counts.values()))
        for failure in failed.values():
            raise _error(failure)
        return list(found.values())

    def _reports(self, chosen: Sequence[Child]) -> Iterator[tuple[Child, Report]]:
        """Also reads and drops what other children report, because a full pipe would stop them."""
        everyone, deadline = (*self._loaders, *self._workers), time.monotonic() + STALL_SECONDS
        while ready := wait([child.pipe for child in everyone], max(deadline - time.monotonic(), 0)):
            for child in [child for child in everyone if child.pipe in ready]:
                report = _received(child)
                if child in chosen:
                    deadline = time.monotonic() + STALL_SECONDS
                    yield child, report
        raise GaveUp(f"no process reported anything for {STALL_SECONDS:.0f} s")


def _send(child: Child, order: Order) -> None:
    with _alive():
        child.pipe.send(order)


def _received(child: Child) -> Report:
    with _alive():
        return child.pipe.recv()


@contextmanager
def _alive() -> Generator[None]:
    try:
        yield
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise GaveUp("a process of the benchmark ended; its error is above") from None


def _error(failure: Failed) -> TideqError:
    if failure.status:
        return refusal(failure.status, failure.message.encode())
    return CannotConnect(f"the service stopped answering during the run: {failure.message}")
