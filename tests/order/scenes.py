"""Random days of a queue: submissions, time that passes, claims; then everything that is left is carried off."""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.kit import Kit
from tests.order.line import OFFSET_MS, Line
from tideq.queue_core.task import NewTask, WorkerDeclaration

LONGEST_DELAY_MS = 150_000_000
FOR_EVER_MS = 10**11
"""An assignment this long does not lapse within a scene."""

CAPABILITIES = ("gpu", "ssd")


class Pass(NamedTuple):
    milliseconds: int


class Take(NamedTuple):
    worker_number: int


Scene = list[tuple[NewTask, ...] | Pass | Take]


def tasks(task_types: Sequence[str]) -> SearchStrategy[NewTask]:
    """Head starts of a whole offset make tasks of different priorities equally urgent."""
    return st.builds(
        NewTask,
        task_type=st.sampled_from(task_types),
        required_capabilities=st.sampled_from([(), (), ("gpu",), ("gpu", "ssd")]),
        priority=st.sampled_from([*OFFSET_MS, None]),
        delay_ms=st.none() | st.sampled_from([1, 1_000, 60_000]) | st.integers(0, LONGEST_DELAY_MS),
        head_start_ms=st.sampled_from([0, 0, 1, 100_000_000, -100_000_000]) | st.integers(-(10**8), 10**8),
    )


def scenes(task_types: Sequence[str], worker_count: int) -> SearchStrategy[Scene]:
    """At most 48 tasks: a claim brings back no more than fifty due ones at once."""
    batch = st.lists(tasks(task_types), min_size=1, max_size=4).map(tuple)
    pause = st.sampled_from([1, 1_000, 60_000, 99_999_999, 100_000_000, 200_000_000]) | st.integers(0, 250_000_000)
    take = st.builds(Take, st.integers(0, worker_count - 1))
    return st.lists(st.one_of(batch, batch, batch, st.builds(Pass, pause), take), min_size=4, max_size=12)


async def play(
    kit: Kit, workers: Sequence[WorkerDeclaration], wanted: int, scene: Scene, line: Line | None = None
) -> None:
    line = line or Line()
    for worker in workers:
        await kit.fleet.register(worker)
    for step in [*scene, Pass(LONGEST_DELAY_MS)]:
        match step:
            case Pass(milliseconds):
                await kit.clock.advance(milliseconds)
                for worker in workers:
                    await kit.fleet.heartbeat(worker.worker_id)
            case Take(worker_number):
                await take(kit, workers[worker_number], wanted, line)
            case batch:
                await join(kit, batch, line)
    for worker in workers:
        while await take(kit, worker, wanted, line):
            pass
    assert not line.waiting


async def join(kit: Kit, batch: Sequence[NewTask], line: Line) -> None:
    for task, answer in zip(batch, await kit.queue.submit_many(batch), strict=True):
        line.join(task, answer)


async def take(kit: Kit, worker: WorkerDeclaration, wanted: int, line: Line) -> int:
    claim = await kit.queue.claim(worker.worker_id, wanted, assignment_ms=FOR_EVER_MS)
    line.serve(worker, wanted, claim)
    return len(claim.tasks)
