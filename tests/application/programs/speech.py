"""004: the queue's operations, with the configuration it has as defaults."""

import time

from tideq import Client
from tideq.client import Backoff
from tideq.client.bulk import PullQueue

with (
    Client() as client,
    PullQueue(
        client,
        "speak",
        max_attempts=3,
        visibility_timeout=3600,
        backoff=Backoff(base_seconds=0.05, multiplier=2.0, cap_seconds=3600),
        batch_size=100,
    ) as queue,
):
    # Bulk insert multiple tasks
    enqueued = queue.enqueue([{"items": [f"sentence {number}"]} for number in range(8)])
    queue.mark_as_cancelled(enqueued[7].task_id)  # PENDING to CANCELLED

    # Pull-based model to retrieve X tasks for processing
    tasks = queue.dequeue(size=5)
    print("dequeued", *(task.parameters["items"][0] for task in tasks))
    queue.mark_as_complete(tasks[0].task_id)
    queue.mark_as_retry(tasks[1].task_id, "no voice")
    queue.mark_as_discarded(tasks[2].task_id)
    queue.mark_as_complete([tasks[3].task_id, tasks[4].task_id])
    queue.mark_as_resume(tasks[2].task_id)  # DISCARDED to PENDING

    # Pull-based retry with configurable timeout; at most three attempts
    for _ in range(2):
        while not (again := queue.retry(size=5, visibility_timeout=3600, max_attempts=3)):
            time.sleep(0.05)
        print("again", *(f"{task.parameters['items'][0]} after {task.tries}" for task in again))
        for task in again:
            print("went", queue.mark_as_retry(task.task_id, "still no voice"))
    print("left", *(task.parameters["items"][0] for task in queue.dequeue()))
