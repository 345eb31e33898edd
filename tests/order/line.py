"""Who is next, reckoned anew at every claim as `offset − age`. Shares no arithmetic with the product."""

from typing import NamedTuple

from tideq.queue_core.task import Claim, NewTask, Submitted, WorkerDeclaration

OFFSET_MS = {"high": 0, "medium": 100_000_000, "low": 200_000_000}


class Waiting(NamedTuple):
    task_id: str
    task_type: str
    capabilities: frozenset[str]
    offset_ms: int
    eligible_at_ms: int

    @property
    def lane(self) -> tuple[str, frozenset[str]]:
        return self.task_type, self.capabilities

    def urgency_ms(self, now_ms: int) -> int:
        """The lower, the sooner."""
        return self.offset_ms - (now_ms - self.eligible_at_ms)

    def suits(self, worker: WorkerDeclaration) -> bool:
        is_handled = worker.task_types is None or self.task_type in worker.task_types
        return is_handled and self.capabilities <= set(worker.capabilities)


class Line:
    """Everybody who waits, and a judge of claims."""

    def __init__(self) -> None:
        self.waiting: dict[str, Waiting] = {}

    def join(self, task: NewTask, answer: Submitted) -> None:
        self.waiting[answer.task_id] = Waiting(
            task_id=answer.task_id,
            task_type=task.task_type,
            capabilities=frozenset(task.required_capabilities),
            offset_ms=OFFSET_MS[task.priority or "medium"] - task.head_start_ms,
            eligible_at_ms=answer.now_ms + (task.delay_ms or 0),
        )

    def serve(self, worker: WorkerDeclaration, wanted: int, claim: Claim) -> None:
        """Exactly the most urgent go, in that order. Those equally urgent go in order of their ids inside a lane."""
        now_ms = claim.now_ms
        ready = [task for task in self.waiting.values() if task.eligible_at_ms <= now_ms and task.suits(worker)]
        taken = [self.waiting.pop(task.task_id) for task in claim.tasks]

        assert [task.urgency_ms(now_ms) for task in taken] == sorted(task.urgency_ms(now_ms) for task in ready)[:wanted]
        for lane in {task.lane for task in taken}:
            line = sorted((task.urgency_ms(now_ms), task.task_id) for task in ready if task.lane == lane)
            taken_here = [task.task_id for task in taken if task.lane == lane]
            assert taken_here == [task_id for _, task_id in line[: len(taken_here)]]
