"""The epoch: whoever was opened for another past is refused by every verb. Forgotten scripts are loaded again."""

from collections.abc import Awaitable, Callable

import pytest

from tests.contract.situations import held, task_in
from tests.kit import Kit, make_kit
from tests.stores import StoreUnderTest
from tideq.queue_core.attempts import Extension, ProgressReport
from tideq.queue_core.errors import StoreReplaced, StoreUnavailable
from tideq.queue_core.queue_picture import QueuePictures
from tideq.queue_core.states import TaskState
from tideq.queue_core.store.connect import is_cluster
from tideq.queue_core.store.restore import StoreRestore
from tideq.queue_core.task import ClaimedTask

VERBS: dict[str, Callable[[Kit, ClaimedTask], Awaitable[object]]] = {
    "submit": lambda kit, task: kit.submit("new"),
    "claim": lambda kit, task: kit.queue.claim("w1"),
    "withdraw": lambda kit, task: kit.queue.undo_claim("w1", "p", 1),
    "start": lambda kit, task: kit.start(task),
    "extend": lambda kit, task: kit.attempts.extend("w1", [Extension(task.task_id, task.lease, 10)]),
    "progress": lambda kit, task: kit.attempts.progress("w1", [ProgressReport(task.task_id, task.lease, 1, 5)]),
    "complete": lambda kit, task: kit.complete(task),
    "fail": lambda kit, task: kit.fail(task),
    "release": lambda kit, task: kit.attempts.release("w1", held(task)),
    "cancel": lambda kit, task: kit.queue.cancel(task.task_id),
    "purge": lambda kit, task: kit.queue.purge(task.task_id),
    "read": lambda kit, task: kit.read(task.task_id),
    "sweep": lambda kit, task: kit.queue.sweep(),
    "acknowledge": lambda kit, task: kit.engine.partition.acknowledge("9999999999999-0", []),
    "register": lambda kit, task: kit.worker("w2"),
    "heartbeat": lambda kit, task: kit.fleet.heartbeat("w1"),
    "drain": lambda kit, task: kit.fleet.drain("w1"),
    "dismiss": lambda kit, task: kit.fleet.remove("w1"),
    "pause": lambda kit, task: kit.controls.pause(),
    "pressure": lambda kit, task: pressure(kit),
    "stats": lambda kit, task: kit.insight.stats(),
    "backlog": lambda kit, task: kit.insight.backlog(),
    "explain": lambda kit, task: kit.insight.explain(task.task_id),
    "snapshot": lambda kit, task: kit.insight.snapshot(),
    "tide": lambda kit, task: QueuePictures([kit.engine.scripts]).picture(),
    "tallies": lambda kit, task: QueuePictures([kit.engine.scripts]).outcomes(60_000),
}


async def pressure(kit: Kit) -> None:
    reply = await kit.engine.scripts.call("set_memory_flag", is_high=1)
    if reply.word == "EPOCH_MISMATCH":
        raise StoreReplaced(reply.details[0].decode())


async def test_every_verb_of_another_epoch_is_refused_and_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    task = await task_in(kit, TaskState.EXECUTING)
    await kit.clock.advance(1_000_000)
    before = await kit.dump()
    kit.engine.scripts.epoch = "another"

    for press in VERBS.values():
        with pytest.raises(StoreReplaced) as refusal:
            await press(kit, task)
        assert refusal.value.found == "1"

    kit.engine.scripts.epoch = "1"
    assert await kit.dump() == before


async def test_a_store_that_came_back_empty_takes_nothing(kit: Kit) -> None:
    await kit.client.delete(kit.keys.key("meta"))

    with pytest.raises(StoreReplaced) as refusal:
        await kit.submit()

    assert refusal.value.found == ""
    assert await kit.dump() == {}
    await kit.queue.open()


async def test_open_keeps_the_epoch_a_store_has(kit: Kit, store: StoreUnderTest) -> None:
    another = await make_kit(kit.client, kit.settings.queue_name, kit.settings, sends_flags=store.sends_flags)

    assert await another.queue.open("7") == "1"


async def test_open_founds_an_empty_store_with_the_epoch_given(kit: Kit) -> None:
    await kit.client.delete(kit.keys.key("meta"))

    assert await kit.queue.open("7") == "7"

    assert await kit.submit()


async def test_scripts_the_store_forgot_are_loaded_again(kit: Kit) -> None:
    await kit.worker()
    await kit.complete(await task_in(kit, TaskState.EXECUTING))
    await kit.client.script_flush()

    again = await task_in(kit, TaskState.EXECUTING)
    await kit.client.script_flush()

    assert await kit.complete(again) == "completed"


@pytest.mark.parametrize("flushes", [2, 1_000])
async def test_a_script_that_is_forgotten_as_soon_as_it_is_loaded_is_loaded_a_few_times(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, flushes: int
) -> None:
    """In a cluster none is loaded: one that a node does not know is sent whole."""
    load, left = kit.client.script_load, [flushes]

    async def load_and_forget(text: str) -> str:
        loaded = await load(text)
        if left[0]:
            left[0] -= 1
            await kit.client.script_flush()
        return loaded

    monkeypatch.setattr(kit.client, "script_load", load_and_forget)
    await kit.client.script_flush()

    if flushes == 2 or is_cluster(kit.client):
        assert await kit.submit()
    else:
        with pytest.raises(StoreUnavailable):
            await kit.submit()


@pytest.mark.parametrize("pattern", ["{}?", "{}*", "{}[0-9a-f]", "\\{}*", "[^-]*"])
async def test_a_wipe_empties_no_other_queue_whatever_its_name(kit: Kit, store: StoreUnderTest, pattern: str) -> None:
    """Settings refuse such a name at start."""
    name = pattern.format(kit.settings.queue_name[:-1])
    other = await make_kit(kit.client, name, kit.settings, sends_flags=store.sends_flags)
    await kit.submit()
    await other.submit()
    before = await kit.dump()
    restoration = StoreRestore(kit.client, other.settings, sends_flags=store.sends_flags)
    restoration._scripts.epoch = other.engine.scripts.epoch  # pyright: ignore[reportPrivateUsage]

    await restoration.wipe()

    assert await kit.dump() == before
    assert not await kit.client.exists(other.keys.key("records"))
