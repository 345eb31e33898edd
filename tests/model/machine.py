"""The whole machine: producers, workers, the fleet coming and going, operators, and time.

One rule with weights of its own instead of a rule a verb: which verbs are drawn, and how often, decides whether rare
transitions are met at all, and Hypothesis would leave a random half of the rules out of each run.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from unittest import mock

from hypothesis import note, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import engine
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from tests.model.bench import Bench
from tests.model.model import ENDED, HELD
from tests.model.rules_producers import Aim, ProducerRules
from tests.model.rules_workers import BODIES, WORKERS, Ticket, WorkerRules
from tests.model.situation import ASSIGNMENT_MS, CIRCUIT_OPEN_MS, HEARTBEAT_MS, KEY_TTL_MS, PROFILES, SCOPES, Draft
from tideq.queue_core.attempts import LeaseRef
from tideq.queue_core.task import WorkerDeclaration
from tideq.queue_core.worker_calls import ReportedState

FOREVER_MS = 2**60
MAX_SHRINKING_SECONDS = 40
ANYBODY = (*WORKERS, "stranger")
WEIGHTS = {
    "submit": 12,
    "claim": 10,
    "work": 4,
    "start_all": 6,
    "start": 5,
    "complete": 6,
    "fail": 9,
    "repeat_result": 3,
    "extend": 6,
    "progress": 6,
    "release": 3,
    "poll_again": 3,
    "withdraw": 3,
    "cancel": 4,
    "retry": 3,
    "replay": 5,
    "complete_after_cancel": 2,
    "reuse_key": 2,
    "purge": 4,
    "leave_to_history": 2,
    "advance": 8,
    "die": 11,
    "dawdle": 8,
    "rest": 2,
    "sweep": 6,
    "register": 6,
    "heartbeat": 3,
    "judge": 3,
    "dismiss": 2,
    "fall_and_rise": 4,
    "pause": 1,
    "limit": 4,
    "lift_all": 3,
    "forget_scripts": 1,
    "come_from_another_epoch": 1,
}

VERBS = [verb for verb, weight in WEIGHTS.items() for _ in range(weight)]
NEEDS = {
    "start_all": "assigned",
    "complete": "executing",
    "fail": "executing",
    "extend": "executing",
    "progress": "executing",
    "replay": "dead_letter",
    "complete_after_cancel": "executing",
}
"""Most of the time these are not tried in vain: work is claimed and started instead."""

STEPS_MS = (1_000, 11_000, 31_000, 31_000, 31_000, 61_000, 95_000, 95_000, 700_000)
STANDINGS = ("active", "active", "active", "unhealthy", "draining")
WORDS: tuple[ReportedState | None, ...] = (
    None,
    "active",
    "active",
    "active",
    "active",
    "active",
    "active",
    "unhealthy",
    "draining",
)
PAUSES_MS = (30_000, None)
MAXIMA = (0, 1, 1, 2, 2, 3)

# Numbers this small are drawn evenly; of larger ones, and of `st.randoms`, a few come back again and again.
throws = st.integers(0, 2**20)


class QueueMachine(ProducerRules, WorkerRules):
    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.copies, self.tickets, self.results = {}, [], []
        self.thrown: Counter[int] = Counter()

    @initialize(throw=throws)
    def open_shop(self, throw: int) -> None:
        self.salt = throw
        for name in PROFILES:
            self.join(name)
        self.submit(Random(throw))

    @rule(throw=throws)
    def step(self, throw: int) -> None:
        """A throw decides all of a step. Hypothesis likes to repeat one: it means something else each time."""
        self.thrown[throw] += 1
        dice = Random(f"{self.salt} {throw} {self.thrown[throw]}")
        verb = dice.choice(VERBS)
        is_idle = verb in NEEDS and all(task.state != NEEDS[verb] for task in self.model.tasks.values())
        verb = "work" if is_idle and dice.random() < 0.9 else verb
        note(f"--- {verb}")
        getattr(self, verb)(dice)

    # Races worth more than chance gives them.

    def complete_after_cancel(self, dice: Random) -> None:
        """The holder has not heard of it yet."""
        ticket = self.choose([Aim("fit", dice.randrange(1000))], ("executing",))[0]
        self.call_off([ticket.task_id])
        self.send_success([ticket], dice.choice(BODIES))

    def reuse_key(self, dice: Random) -> None:
        """A key's time is over, it is used anew, the old task is purged: it still stands for the new one."""
        keyed = [task_id for task_id, task in self.model.tasks.items() if task.draft.key and task.state in ENDED]
        if keyed:
            task_id = dice.choice(keyed)
            draft = self.model.tasks[task_id].draft
            self.pass_time(KEY_TTL_MS)
            self.send_in([draft])
            self.remove([task_id])
            self.send_in([draft])

    def fall_and_rise(self, dice: Random) -> None:
        """A worker fails at all it is given until its circuit opens, waits that out, and does well on trial."""
        if not (active := [name for name in self.model.silent_at if self.model.status(name) == "active"]):
            return
        worker = dice.choice(active)
        self.take_and(worker, lambda tickets: self.send_failure(tickets, "retry", "", 0, BODIES[0]))
        if dice.random() < 0.7:
            self.pass_time(CIRCUIT_OPEN_MS)
            for name in sorted(self.model.silent_at):
                self.beat(name)
            self.take_and(worker, lambda tickets: self.send_success(tickets, BODIES[0]))

    def take_and(self, worker: str, settle: Callable[[list[Ticket]], None]) -> None:
        if len(self.model.takeable(worker)) < 2:
            self.send_in([Draft("crawl", "high")] * 2)
        self.take(worker, 3)
        if tickets := [each for each in self.tickets if each.worker == worker and self.is_held(each, ("assigned",))]:
            self.speak("start", self.kit.attempts.start, LeaseRef, tickets)
            settle(tickets)

    # The fleet.

    def register(self, dice: Random) -> None:
        """Whoever is missing comes back; where nobody is, someone tries to come twice."""
        absent = [name for name in PROFILES if name not in self.model.silent_at]
        for worker in absent or [dice.choice(WORKERS)]:
            self.join(worker)

    def join(self, worker: str) -> None:
        is_absent = worker not in self.model.silent_at
        types, capabilities = PROFILES[worker]
        card = WorkerDeclaration(worker_id=worker, task_types=types, capabilities=capabilities)
        self.agree("register", self.ask(self.kit.fleet.register(card)), None if is_absent else "worker-exists")
        if is_absent:
            self.model.circuits = {of: circuit for of, circuit in self.model.circuits.items() if of[0] != worker}
            self.model.silent_at[worker] = self.model.now + HEARTBEAT_MS
            self.model.standing[worker] = self.model.words[worker] = "active"

    def heartbeat(self, dice: Random) -> None:
        self.beat(dice.choice(ANYBODY), dice.choice(WORDS))

    def beat(self, worker: str, word: ReportedState | None = None) -> None:
        answer = self.ask(self.kit.fleet.heartbeat(worker, reported_state=word))
        if isinstance(answer, str) or worker not in self.model.silent_at:
            return self.agree("heartbeat", answer, "unknown-worker")
        self.model.silent_at[worker] = self.model.now + HEARTBEAT_MS
        self.model.words[worker] = word or self.model.words[worker]
        return self.agree("heartbeat", answer.should_drain, self.model.standing[worker] == "draining")

    def judge(self, dice: Random) -> None:
        """A verdict about health never undoes a drain."""
        worker, verdict, fleet = dice.choice(ANYBODY), dice.choice(STANDINGS), self.kit.fleet
        is_known = worker in self.model.silent_at
        if is_known and self.model.standing[worker] != "draining":
            self.model.standing[worker] = verdict
        expected = None if verdict == "draining" or not is_known else self.model.status(worker)
        call = fleet.drain(worker) if verdict == "draining" else fleet.set_health(worker, verdict == "active")
        self.agree("judge", self.ask(call), expected if is_known else "unknown-worker")

    def dismiss(self, dice: Random) -> None:
        worker = dice.choice(ANYBODY)
        held = [task for task in self.model.tasks.values() if task.state in HELD and task.worker == worker]
        is_known = self.model.silent_at.pop(worker, None) is not None
        self.agree("dismiss", self.ask(self.kit.fleet.remove(worker)), len(held) if is_known else "unknown-worker")
        for task in held:
            self.model.hand_back(task)

    # Operators.

    def pause(self, dice: Random) -> None:
        scope, for_ms = dice.choice(SCOPES), dice.choice(PAUSES_MS)
        resume_at_ms = None if for_ms is None else self.model.now + for_ms
        self.wait(self.kit.controls.pause(_task_type(scope), resume_at_ms=resume_at_ms))
        self.model.pauses[scope] = resume_at_ms or FOREVER_MS

    def limit(self, dice: Random) -> None:
        scope, most = dice.choice(SCOPES), dice.choice(MAXIMA)
        self.wait(self.kit.controls.limit(_task_type(scope), max_executing=most))
        self.model.limits[scope] = most

    def lift_all(self, dice: Random) -> None:
        for scope in self.model.pauses:
            self.wait(self.kit.controls.resume(_task_type(scope)))
        for scope in self.model.limits:
            self.wait(self.kit.controls.limit(_task_type(scope)))
        self.model.pauses, self.model.limits = {}, {}

    # Time and trouble.

    def advance(self, dice: Random) -> None:
        """Time passes; some workers are heard of just in time, the others not."""
        self.pass_time(dice.choice(STEPS_MS))
        for worker in sorted({name for name in PROFILES if dice.random() < 0.6} & self.model.silent_at.keys()):
            self.beat(worker)

    def die(self, dice: Random) -> None:
        """A worker takes some work and falls silent with all it holds, perhaps with others who had nothing to do."""
        self.work(dice)
        held = [task for task in self.model.tasks.values() if task.state in HELD]
        holders = [task.worker for task in held if task.losses] or [task.worker for task in held]
        dead = {dice.choice(holders or WORKERS), dice.choice(WORKERS)}
        self.pass_time(HEARTBEAT_MS + 1)
        for worker in sorted(self.model.silent_at.keys() - dead):
            self.beat(worker)
        if dice.random() < 0.6:
            self.sweep(dice)
            self.register(dice)

    def rest(self, dice: Random) -> None:
        """An hour goes by in which workers only say that they live; then all is tidied up."""
        self.pass_time(3_700_000)
        for worker in sorted(self.model.silent_at):
            self.beat(worker)
        for _ in range(2):
            self.sweep(dice)

    def dawdle(self, dice: Random) -> None:
        """A worker takes some work and does not start it in time."""
        self.claim(dice)
        self.pass_time(ASSIGNMENT_MS + 1)

    def forget_scripts(self, dice: Random) -> None:
        self.wait(self.kit.client.script_flush())

    def come_from_another_epoch(self, dice: Random) -> None:
        scripts = self.kit.engine.scripts
        known, scripts.epoch = scripts.epoch, "another"
        answers = [self.ask(self.kit.queue.claim(dice.choice(WORKERS), 5)), self.ask(self.kit.queue.sweep())]
        scripts.epoch = known
        for answer in answers:
            self.agree("other epoch", answer, "store-replaced")


def _task_type(scope: str) -> str | None:
    return None if scope == "*" else scope


def drive(bench: Bench, chosen: settings, seed_number: int) -> None:
    """Run the machine as often as the settings say; raises at a disagreement, with the steps that led to it."""

    @seed(seed_number)
    class Machine(QueueMachine):
        def __init__(self) -> None:
            super().__init__(bench)

    # Hypothesis varies each example it makes five times before it makes another: 205 runs had 37 beginnings.
    with (
        mock.patch.object(engine.ConjectureRunner, "generate_mutations_from", return_value=None),
        mock.patch.object(engine, "MAX_SHRINKING_SECONDS", MAX_SHRINKING_SECONDS),
    ):
        run_state_machine_as_test(Machine, settings=chosen)
