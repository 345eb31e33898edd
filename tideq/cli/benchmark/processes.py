"""The processes of a run, from the side that started them: given orders together, heard as one."""

import contextlib
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import msgspec

from tideq.cli.benchmark.messages import Failed, Report, Order, Pace, Progress, Ready, Rest, Submitted, Target, Work, Worked
from tideq.client import CannotConnect, TideqError
from tideq.client.error_mapping import refusal

PATIENCE_SECONDS = 60.0
"""How long nobody may get on before the run is given up."""
LOOK_SECONDS = 2.0
"""So long without progress, and the service is asked whether it is there."""
LEAVE_SECONDS = 10.0
REFUSED = 400

T = TypeVar("T")
Advance = Callable[[int], None]
_decode = msgspec.json.Decoder(Report).decode


class GaveUp(TideqError):
    """A run that cannot go on, through nobody's refusal."""


class BenchProcess:
    """In a group of its own: Ctrl-C reaches us alone, and we end things in order."""

    def __init__(self, role: Literal["load", "work"], target: Target, hear: Callable[["BenchProcess", Report], None]) -> None:
        command = [sys.executable, "-P", "-m", "tideq.cli.benchmark.child", role]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        self._hear = hear
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._write(msgspec.json.encode(target))

    def send(self, order: Order) -> None:
        self._write(msgspec.json.encode(order))

    def leave(self) -> None:
        """The end of its orders: a worker then hands back what it holds and takes leave of the service."""
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def end(self, deadline: float = 0.0) -> None:
        """By force where it has not ended by then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(deadline - time.monotonic(), 0))
        self._process.kill()
        self._process.wait()
        self.leave()
        self._listener.join()

    def _write(self, line: bytes) -> None:
        """One that has died tells so by its silence."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._hear(self, _decode(line))
        self._hear(self, Failed(0, ""))


class ProcessGroup:
    """`check` raises where the service has gone: workers would wait for it to come back."""

    def __init__(self, target: Target, load_count: int, worker_count: int, check: Callable[[], None]) -> None:
        self._check = check
        self._news = queue.SimpleQueue[tuple[BenchProcess, Report]]()
        self._everyone: list[BenchProcess] = []
        self.loaders = self._start("load", target, load_count)
        self.workers = self._start("work", target, worker_count)

    def ready(self) -> None:
        self._answers(self._everyone, Ready)

    def load(self, orders: Sequence[Order], advance: Advance) -> list[Submitted]:
        """One order for each of the first processes that load."""
        chosen = self.loaders[: len(orders)]
        for child, order in zip(chosen, orders, strict=True):
            child.send(order)
        return self._answers(chosen, Submitted, advance)

    def work(self, worker_count: int, task_count: int, advance: Advance) -> list[Worked]:
        """Until these workers have done as many tasks together, and a few more that they held by then."""
        chosen = self._begin_work(worker_count)
        self._until(chosen, task_count, advance)
        return self._end_work(chosen)

    def work_beside(self, worker_count: int, order: Pace, advance: Advance) -> tuple[list[Submitted], list[Worked]]:
        """Workers that wait for what is handed in meanwhile."""
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
        """In order, as far as the time allows; those that load have nothing to hand back."""
        for child in self.loaders:
            child.end()
        for child in self.workers:
            child.leave()
        deadline = time.monotonic() + LEAVE_SECONDS
        for child in self.workers:
            child.end(deadline)

    def _start(self, role: Literal["load", "work"], target: Target, count: int) -> list[BenchProcess]:
        started = [BenchProcess(role, target, lambda child, news: self._news.put((child, news))) for _ in range(count)]
        self._everyone += started
        return started

    def _until(self, chosen: Sequence[BenchProcess], task_count: int, advance: Advance) -> None:
        done, best, moved_at, looked_at = dict[BenchProcess, int](), 0, time.monotonic(), time.monotonic()
        while best < task_count:
            child, news = self._next(chosen)
            if isinstance(news, Failed):
                raise _error(news)
            done[child] = news.count if isinstance(news, Progress) else 0
            now = time.monotonic()
            if sum(done.values()) > best:
                best, moved_at, looked_at = sum(done.values()), now, now
                advance(min(best, task_count))
            elif now - moved_at > PATIENCE_SECONDS:
                raise GaveUp(f"{task_count - best} tasks wait and none was handed out for {PATIENCE_SECONDS:.0f} s")
            elif now - looked_at > LOOK_SECONDS:
                looked_at = now
                self._check()

    def _answers(self, chosen: Sequence[BenchProcess], kind: type[T], advance: Advance = lambda count: None) -> list[T]:
        """Of all of them, also where one fails: what comes late would be taken for the answer to the next order."""
        found, failed, counts = dict[BenchProcess, T](), dict[BenchProcess, Failed](), dict[BenchProcess, int]()
        while len({*found, *failed}) < len(chosen):
            child, news = self._next(chosen)
            if isinstance(news, kind):
                found[child] = news
            elif isinstance(news, Failed):
                failed[child] = news
            elif isinstance(news, Progress):
                counts[child] = news.count
                advance(sum(counts.values()))
        for failure in failed.values():
            raise _error(failure)
        return list(found.values())

    def _next(self, chosen: Sequence[BenchProcess]) -> tuple[BenchProcess, Report]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                child, news = self._news.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise GaveUp(f"nothing happened for {PATIENCE_SECONDS:.0f} s") from None
            if child in chosen:
                return child, news


def _error(failure: Failed) -> TideqError:
    if failure.status >= REFUSED:
        return refusal(failure.status, failure.message.encode())
    if not failure.message:
        return GaveUp("a process of the benchmark ended; it said why above")
    return CannotConnect(f"the service went away in the middle of it: {failure.message}")
