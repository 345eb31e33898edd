"""More than 64 lanes a worker serves are kept as a map, fewer as a list: both say what lanes.py says."""

from tests.kit import Kit
from tideq.queue_core.attempts import LeaseRef
from tideq.queue_core.lanes import lane_signature, serves, worker_profile
from tideq.queue_core.task import NewTask

CAPABILITIES = ("a", "b", "c", "ab", "a.b", "a-b")


def subset(number: int) -> tuple[str, ...]:
    return tuple(name for bit, name in enumerate(CAPABILITIES) if number >> bit & 1)


async def test_workers_of_few_and_of_many_lanes_are_served_those_that_lanes_py_says(kit: Kit) -> None:
    kinds = [(f"t{number}", subset(number)) for number in range(200)]
    tasks = [NewTask(task_type=task_type, required_capabilities=required) for task_type, required in kinds]
    answers = await kit.queue.submit_many(tasks)
    signatures = {answer.task_id: lane_signature(*kind) for answer, kind in zip(answers, kinds, strict=True)}
    await kit.worker()
    served_counts: set[int] = set()

    for number in range(2 ** len(CAPABILITIES)):
        profile = worker_profile(None, subset(number))
        claimed = (await kit.queue.claim("w1", 1_000, capabilities=subset(number))).tasks

        served = {task_id for task_id, signature in signatures.items() if serves(profile, signature)}
        assert {task.task_id for task in claimed} == served
        served_counts.add(len(claimed))
        await kit.attempts.release("w1", [LeaseRef(task.task_id, task.lease) for task in claimed])

    assert min(served_counts) <= 64 < max(served_counts)
