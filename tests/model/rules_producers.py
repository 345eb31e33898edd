"""What producers do at random: submit, cancel, retry, replay, purge; and history taking finished tasks over."""

from random import Random
from typing import NamedTuple

from hypothesis import note

from tests.model import situation
from tests.model.bench import ComparedQueue, foretell, said
from tests.model.model import ENDED, HELD, REVIVALS
from tests.model.situation import LEVELS, TASK_TYPES, Draft
from tideq.queue_core.partition import KeptTask
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.task import NewTask

MAX_LIVE = 25
UNKNOWN_ID = "01890000-0000-7000-8000-000000000000"
NO_RANK_MS = 2**42
AIMS = ("fit", "fit", "fit", "any", "unknown")
PRIORITIES = (None, None, *LEVELS)


class Aim(NamedTuple):
    """What a call is about: something it suits, anything there ever was, or something that never was."""

    at: str
    number: int


def some_aims(dice: Random, kinds: tuple[str, ...], most: int) -> list[Aim]:
    return [Aim(dice.choice(kinds), dice.randrange(1000)) for _ in range(dice.randint(1, most))]


def some_draft(dice: Random) -> Draft:
    """Every second one has a key; there are two keys with two bodies each, so there are repeats and conflicts."""
    key = dice.choice(("", "", "a", "b"))
    dice = Random(f"{key} {dice.randrange(2)}") if key else dice
    return Draft(
        task_type=dice.choice(TASK_TYPES),
        priority=dice.choice(tuple(LEVELS)),
        needs=dice.choice(((), (), ("gpu",))),
        max_retries=dice.choice((None, None, 0, 2)),
        timeout_ms=dice.choice((None, None, None, 60_000, 4_000_000)),
        delay_ms=dice.choice((0, 0, 0, 5_000, 50_000)),
        head_start_ms=dice.choice((0, 0, 0, 20_000)) if dice.random() < 0.94 else NO_RANK_MS,
        key=key,
        backoff=dice.choice((situation.Backoff(), situation.Backoff(2_000, 3, 9_000))),
    )


class ProducerRules(ComparedQueue):
    copies: dict[str, KeptTask]

    def submit(self, dice: Random) -> None:
        self.pass_time(dice.choice((0, 1, 250)))
        if self.live_count() < MAX_LIVE:
            self.send_in([some_draft(dice) for _ in range(dice.randint(1, 5))])

    def send_in(self, batch: list[Draft]) -> None:
        note(f"submitted: {batch}")
        expected = foretell(self.model.submit, batch)
        answers = self.ask(self.kit.queue.submit_many([_new_task(draft) for draft in batch]))
        if isinstance(answers, str) or isinstance(expected, str):
            return self.agree("submit", answers, expected)
        for answer, task in zip(answers, expected, strict=True):
            assert answer.is_new == (task not in self.model.tasks.values()), f"{answer}: is it new?"
            assert self.model.tasks.setdefault(answer.task_id, task) is task, f"{answer} stands for another task"
            self.known_ids += [answer.task_id] if answer.is_new else []
        return None

    def cancel(self, dice: Random) -> None:
        self.call_off([self.target(aim, ("queued", *HELD)) for aim in some_aims(dice, AIMS, most=2)])

    def call_off(self, task_ids: list[str]) -> None:
        for task_id, outcome in zip(task_ids, self.wait(self.kit.queue.cancel_many(task_ids)), strict=True):
            self.agree("cancel", said(outcome), foretell(self.model.cancel, task_id))

    def purge(self, dice: Random) -> None:
        self.remove([self.target(aim, ENDED) for aim in some_aims(dice, AIMS, most=3)])

    def remove(self, task_ids: list[str]) -> None:
        for task_id, outcome in zip(task_ids, self.wait(self.kit.queue.purge_many(task_ids)), strict=True):
            # What else a success says, the name of the key that is free now, is for other partitions.
            told = said(outcome) if outcome.error else "ok"
            self.agree("purge", told, foretell(self.model.purge, task_id))
            if outcome.error is None:
                self.copies.pop(task_id, None)

    def retry(self, dice: Random) -> None:
        self.revive_some("retry", dice)

    def replay(self, dice: Random) -> None:
        self.revive_some("replay", dice)

    def revive_some(self, verb: str, dice: Random) -> None:
        for aim in some_aims(dice, AIMS, most=3):
            task_id = self.target(aim, REVIVALS[verb][0])
            kept = self.copies.get(task_id) if aim.number % 4 else None
            self.revive(verb, task_id, dice.choice(PRIORITIES), dice.random() < 0.5, kept)

    def revive(
        self, verb: str, task_id: str, priority: str | None, keeps_budgets: bool, kept: KeptTask | None = None
    ) -> None:
        send = self.kit.queue.retry if verb == "retry" else self.kit.queue.replay
        answer = self.ask(send(task_id, priority=priority, keeps_budgets=keeps_budgets, kept=kept))
        expected = foretell(self.model.revive, verb, task_id, priority, keeps_budgets, kept is not None)
        self.agree(verb, answer if isinstance(answer, str) else f"ok {answer}", expected)

    def leave_to_history(self, dice: Random) -> None:
        """History has a finished task, and the store's time with it is up; unless it was retried just before."""
        task_id = self.target(some_aims(dice, AIMS, most=1)[0], ENDED)
        task = self.model.tasks.get(task_id)
        if task is None or task.is_forgotten:
            return
        version, is_over = task.version, task.state in ENDED
        self.wait(self.hand_over(task_id, version))
        if dice.random() < 0.3:
            self.revive("retry", task_id, None, keeps_budgets=False)
        self.pass_time(situation.RESULT_TTL_MS)
        self.sweep(dice)
        task.is_forgotten = is_over and task.version == version

    async def hand_over(self, task_id: str, version: int) -> None:
        keys, client = self.kit.keys, self.kit.client
        record = await client.hget(keys.key("records"), task_id)
        self.copies[task_id] = KeptTask(record, await client.hget(keys.key("definitions"), task_id))
        await self.kit.engine.partition.acknowledge("0", [(task_id, version)])

    def sweep(self, dice: Random) -> None:
        self.wait(self.kit.queue.sweep())
        self.model.recover()

    def target(self, aim: Aim, states: tuple[str, ...]) -> str:
        fit = [task_id for task_id in self.known_ids if self.state_of(task_id) in states]
        candidates = {"fit": fit or self.known_ids, "any": self.known_ids}.get(aim.at) or [UNKNOWN_ID]
        return candidates[aim.number % len(candidates)]

    def state_of(self, task_id: str) -> str:
        task = self.model.tasks.get(task_id)
        return task.state if task else ""

    def live_count(self) -> int:
        return sum(task.state not in ENDED for task in self.model.tasks.values())


def _new_task(draft: Draft) -> NewTask:
    return NewTask(
        task_type=draft.task_type,
        priority=draft.priority,
        required_capabilities=draft.needs,
        max_retries=draft.max_retries,
        timeout_ms=draft.timeout_ms,
        delay_ms=draft.delay_ms or None,
        head_start_ms=draft.head_start_ms,
        idempotency_key=draft.key or None,
        backoff=None if draft.backoff == situation.Backoff() else Backoff(*draft.backoff),
    )
