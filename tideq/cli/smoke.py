"""`tideq smoke`: runs one task from submission to history, to check that a service works."""

import time
import uuid

from tideq.cli.output import note, print_line
from tideq.cli.session import FAILED, LOCAL, OK, Service, open_client
from tideq.client import Client, Task
from tideq.client.bulk import PullQueue

MAX_POLL_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 0.5


def smoke(*, history: bool = True, wait_seconds: float = 20, service: Service = LOCAL) -> int:
    """Submit a task, run it, read its result back. Needs an admin's key; exits with 1 if a step fails.

    Parameters
    ----------
    history
        Also check that history has every transition of the task.
    wait_seconds
        How long each step may take: claiming the task, and its replication to history.
    """
    with open_client(service) as client:
        tide = uuid.uuid4().hex[:12]
        task_id = _run_once(client, tide, wait_seconds)
        task = _with_history(client, task_id, wait_seconds) if history else client.get(task_id)
    fault = _fault(task, tide) or (_gap(task) if history else "")
    if fault:
        note(f"error: task {task_id} {fault}")
        return FAILED
    print_line(f"task {task_id} was submitted, completed and read back")
    return OK


def _run_once(client: Client, tide: str, wait_seconds: float) -> str:
    """Uses a task type of its own: other workers cannot claim this task, and this worker cannot claim other tasks."""
    with PullQueue(client, f"smoke-{tide}", name="smoke") as queue:
        submitted = client.submit(f"smoke-{tide}", {"tide": tide})
        for pulled in queue.dequeue(1, wait_seconds=min(wait_seconds, MAX_POLL_SECONDS)):
            queue.mark_as_complete(pulled.task_id, pulled.parameters)
    return submitted.task_id


def _with_history(client: Client, task_id: str, wait_seconds: float) -> Task:
    """Polls until history has the completion or the time is up: a replicator may have started a moment ago."""
    deadline = time.monotonic() + wait_seconds
    while _gap(task := client.get(task_id, history=True)) and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN_SECONDS)
    return task


def _fault(task: Task, tide: str) -> str:
    if task.status != "completed":
        return f"is {task.status}, not completed"
    if task.result != {"tide": tide}:
        return f"has the result {task.result!r}, not the one its worker reported"
    return ""


def _gap(task: Task) -> str:
    states = [change.state for change in task.state_history or ()]
    return "" if "completed" in states else f"is not completed in history, which has {states}; run `tideq replicate`"
