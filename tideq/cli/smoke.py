"""`tideq smoke`: one task all the way round, to see that a service works."""

import time
import uuid

from tideq.cli.logging import say
from tideq.cli.output import note
from tideq.cli.session import FAILED, LOCAL, OK, Service, calling
from tideq.client import Client, Task
from tideq.client.bulk import PullQueue

MAX_POLL_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 0.5


def smoke(*, history: bool = True, wait_seconds: float = 20, service: Service = LOCAL) -> int:
    """Submit a task, do it, read its result back. Takes an admin's key; the exit code is the outcome.

    Parameters
    ----------
    history
        Also see that history has every transition of it.
    wait_seconds
        How long each step may take: the task to come round, and history to follow.
    """
    with calling(service) as client:
        tide = uuid.uuid4().hex[:12]
        task_id = _once_round(client, tide, wait_seconds)
        task = _with_history(client, task_id, wait_seconds) if history else client.get(task_id)
    fault = _fault(task, tide) or (_gap(task) if history else "")
    if fault:
        note(f"error: task {task_id} {fault}")
        return FAILED
    say(f"submitted, worked and read back: task {task_id}")
    return OK


def _once_round(client: Client, tide: str, wait_seconds: float) -> str:
    """A type of its own, so that nobody else takes it and it takes nobody else's."""
    with PullQueue(client, f"smoke-{tide}", name="smoke") as queue:
        submitted = client.submit(f"smoke-{tide}", {"tide": tide})
        for pulled in queue.dequeue(1, wait_seconds=min(wait_seconds, MAX_POLL_SECONDS)):
            queue.mark_as_complete(pulled.task_id, pulled.parameters)
    return submitted.task_id


def _with_history(client: Client, task_id: str, wait_seconds: float) -> Task:
    """As soon as history has followed, or as it is when the time is up: a replicator may only just have started."""
    deadline = time.monotonic() + wait_seconds
    while _gap(task := client.get(task_id, history=True)) and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN_SECONDS)
    return task


def _fault(task: Task, tide: str) -> str:
    if task.status != "completed":
        return f"is {task.status}, not completed"
    if task.result != {"tide": tide}:
        return f"has the result {task.result!r}, not what its worker gave"
    return ""


def _gap(task: Task) -> str:
    states = [change.state for change in task.state_history or ()]
    return "" if "completed" in states else f"is not completed in history, which has {states}: is a replicator running?"
