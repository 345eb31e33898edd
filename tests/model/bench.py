"""The engine on a real store with the model beside it, compared after every step.

Time stands still but for the steps that move it: the store's clock never runs backwards, so an offset far in the past
leaves the remembered instant in charge. Every deadline is exact, and a run repeats from its seed.
"""

import asyncio
import itertools
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine, invariant

from tests.kit import Kit, make_kit
from tests.model import situation
from tests.model.model import Model, ModelTask, Refused
from tideq.queue_core.errors import QueueError
from tideq.queue_core.invariants import Snapshot, violations
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.scripts.replies import Outcome
from tideq.queue_core.settings import Circuit, Leases, Priority, QueueSettings, Retention

STEP_COUNT = 50
FIRST_MS = 1_800_000_000_000
COMPARED = (
    *("state", "reason", "version", "attempt", "retries", "losses", "deliveries"),
    *("lease", "worker", "rank", "max_retries", "timeout_ms"),
)

SETTINGS = QueueSettings(
    priorities={name: Priority(*level) for name, level in situation.LEVELS.items()},
    leases=Leases(
        assignment_ms=situation.ASSIGNMENT_MS,
        heartbeat_timeout_ms=situation.HEARTBEAT_MS,
        max_execution_ms=situation.MAX_EXECUTION_MS,
        max_deliveries=situation.MAX_DELIVERIES,
        max_losses=situation.MAX_LOSSES,
    ),
    retention=Retention(idempotency_ttl_ms=situation.KEY_TTL_MS, result_ttl_ms=situation.RESULT_TTL_MS),
    backoff=Backoff(*situation.Backoff()),
    circuit=Circuit(
        failures=situation.CIRCUIT_FAILURES,
        window_ms=situation.CIRCUIT_WINDOW_MS,
        open_ms=situation.CIRCUIT_OPEN_MS,
        trials=situation.CIRCUIT_TRIALS,
    ),
)

T = TypeVar("T")


@dataclass
class Bench:
    """One store, one loop, and what was counted over all runs on them."""

    loop: asyncio.AbstractEventLoop
    client: Any
    run_count: int = 0
    full_run_count: int = 0
    step_count: int = 0
    fired: Counter[str] = field(default_factory=Counter[str])


class ComparedQueue(RuleBasedStateMachine):
    """A queue of its own on the bench. The rules are in `rules_*.py`."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.model = Model(FIRST_MS)
        self.known_ids: list[str] = []
        self.step_count = -1
        self.kit: Kit = self.wait(make_kit(bench.client, f"model-{uuid.uuid4().hex[:12]}", SETTINGS))
        self.wait(self.kit.clock.stop(FIRST_MS))

    def teardown(self) -> None:
        self.bench.fired += self.model.fired
        self.bench.run_count += 1
        self.bench.full_run_count += self.step_count >= STEP_COUNT
        self.bench.step_count += self.step_count

    def wait(self, coroutine: Awaitable[T]) -> T:
        return self.bench.loop.run_until_complete(coroutine)

    def pass_time(self, milliseconds: int) -> None:
        if milliseconds:
            note(f"{milliseconds} ms pass")
            self.wait(self.kit.client.hincrby(self.kit.keys.key("meta"), "now_ms", milliseconds))
            self.model.now += milliseconds

    def ask(self, coroutine: Awaitable[T]) -> T | str:
        """What the engine answers, or how it refuses."""
        try:
            return self.wait(coroutine)
        except QueueError as error:
            return refusal(error)

    def agree(self, verb: str, answer: object, expected: object) -> None:
        note(f"{verb}: {answer}")
        assert answer == expected, f"{verb}: the engine answers {answer!r}, the model {expected!r}"
        if isinstance(answer, str) and "-" in answer.split()[0]:
            self.model.fired[f"{verb} ✗ {answer.partition(' ')[0]}"] += 1

    @invariant()
    def everything_is_as_foretold(self) -> None:
        self.step_count += 1
        snapshot = self.wait(self.kit.insight.snapshot())
        assert snapshot.now_ms == self.model.now
        broken = [*violations(snapshot), *differences(self.model, snapshot)]
        assert not broken, "\n".join(broken)


def foretell(oracle: Callable[..., T], *arguments: Any) -> T | str:
    try:
        return oracle(*arguments)
    except Refused as refused:
        return str(refused)


def refusal(error: QueueError) -> str:
    return f"{error.code} {getattr(error, 'state', '')}".strip()


def said(outcome: Outcome) -> str:
    return refusal(outcome.error) if outcome.error else " ".join(("ok", *outcome.details)).strip()


def differences(model: Model, snapshot: Snapshot) -> Iterator[str]:
    """Where the store is not as the model says. What chance decided is checked, and then learned."""
    kept = {task_id: task for task_id, task in model.tasks.items() if not task.is_forgotten}
    for task_id in kept.keys() ^ snapshot.records.keys():
        yield f"{task_id} is in only one of store and model"
    yield from _shared_instants(kept, snapshot)
    for task_id in kept.keys() & snapshot.records.keys():
        task, score = kept[task_id], snapshot.queue.get(task_id, 0)
        yield from _record_differences(task_id, task, snapshot.records[task_id])
        if (score > 0) != (task.hidden is not None) or (task.hidden and score not in task.hidden):
            yield f"{task_id} is {task.state} at score {score}, the model hides it until {task.hidden}"
        task.hidden = range(score, score + 1) if task.hidden else None


def _record_differences(task_id: str, task: ModelTask, record: dict[str, str]) -> Iterator[str]:
    for name in COMPARED:
        if record[name] != str(getattr(task, name)):
            yield f"{task_id}, {task.state}: {name} is {record[name]}, not {getattr(task, name)}"


def _shared_instants(kept: dict[str, ModelTask], snapshot: Snapshot) -> Iterator[str]:
    """What one dead worker executed comes back staggered: no two tasks at the same instant."""
    lost = [task_id for task_id, task in kept.items() if task.reason == "worker_lost" and len(task.hidden or ()) > 1]
    for one, other in itertools.combinations(lost, 2):
        if kept[one].worker == kept[other].worker and snapshot.queue.get(one) == snapshot.queue.get(other):
            yield f"{one} and {other} come back at the same instant"
