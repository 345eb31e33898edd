"""`explain` in words: what holds a task back, in the order to check."""

from collections.abc import Iterator

from tideq.api.schemas.tasks import ExplanationOut
from tideq.api.schemas.times import in_words, maybe_rfc3339
from tideq.queue_core.controls import Control
from tideq.queue_core.partition_views import Explanation
from tideq.queue_core.score import queue_score
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import Task


def explanation_out(found: Explanation) -> ExplanationOut:
    return ExplanationOut(
        task_id=found.task_id,
        status=found.state,
        reason=found.reason,
        queue_score=queue_score(found.rank, found.now_ms) if found.state is TaskState.QUEUED else None,
        queue_position=found.lane_position,
        global_position=found.global_position,
        visible_at=maybe_rfc3339(found.visible_at_ms),
        serving_workers=found.serving_worker_count,
        can_start_at=maybe_rfc3339(_can_start_at(found)),
        blocked_by=list(_obstacles(found)),
    )


def expired_out(task: Task) -> ExplanationOut:
    """For a task that only history has: it has ended and waits for nothing."""
    return ExplanationOut(
        task_id=task.task_id,
        status=task.state,
        reason=task.reason,
        queue_score=None,
        queue_position=None,
        global_position=None,
        visible_at=None,
        serving_workers=0,
        can_start_at=None,
        blocked_by=[],
    )


def _can_start_at(found: Explanation) -> int | None:
    """The earliest instant, if only time holds the task back; None if it waits for an operator or a worker."""
    if found.state is not TaskState.QUEUED:
        return None
    is_blocked = found.allowed_now == 0 and found.allowed_at_ms is None
    held_back_until_ms = found.blocked_until_ms if found.serving_worker_count == 0 else None
    is_blocked |= found.serving_worker_count == 0 < found.blocked_worker_count and held_back_until_ms is None
    earliest = (found.visible_at_ms, found.allowed_at_ms, held_back_until_ms, found.now_ms)
    return None if is_blocked else max(filter(None, earliest))


def _obstacles(found: Explanation) -> Iterator[str]:
    if found.state is not TaskState.QUEUED:
        return
    if found.visible_at_ms is not None:
        yield f"hidden for another {in_words(found.visible_at_ms - found.now_ms)} ({found.reason})"
    yield from _rules("the whole queue", found.queue_control, found.queue_left)
    yield from _rules("its task type", found.type_control, found.type_left)
    yield from _circuits(found)
    if not found.serving_workers:
        yield f"no active worker serves {found.lane.rstrip('|')}"
    if found.global_position:
        yield f"{found.global_position} ready tasks rank before it"


def _circuits(found: Explanation) -> Iterator[str]:
    workers = f"of {len(found.serving_workers)} active workers that serve it"
    if found.open_circuit_count:
        until = maybe_rfc3339(found.blocked_until_ms)
        yield (
            f"{found.open_circuit_count} {workers} get no tasks of this type before {until}: "
            "most of their latest tasks of this type failed"
        )
    if on_trial := found.trials_left:
        yield (
            f"{len(on_trial)} {workers} are on trial for this type, with {sum(on_trial)} trial tasks left: "
            "their next results decide"
        )


def _rules(scope: str, control: Control, left: int | None) -> Iterator[str]:
    """A limit with tasks left holds nothing back and is not listed."""
    if control.pause is not None:
        yield f"{scope} is paused" + (f": {control.pause.reason}" if control.pause.reason else "")
    if left != 0:
        return
    if control.limits.tasks_per_second is not None:
        yield f"{scope} is limited to {control.limits.tasks_per_second:g} tasks a second"
    if control.limits.max_executing is not None:
        yield f"{scope} is limited to {control.limits.max_executing} at once"
