"""An independent oracle of the queue, written from SPEC sections 1 to 4. It imports nothing of the queue.

It is told what it cannot know (ids, leases, what chance decided) and checks that it can be so. It does not speak of
rates, admission, what workers are told to stop, or how a score is written (the snapshot's invariants do).
"""

from collections import Counter

from tests.model import situation as given
from tests.model.circuit import Circuit
from tests.model.situation import LEVELS, Draft

MAX_RANK, STAGGER_MS, MAX_RAISED_TIMEOUT_MS = 2**42 - 1, 100, 3_600_000
SLOW_DOWN, MORE_TIME = ("RATE_LIMIT", "TEMPORARY_UNAVAILABLE"), ("TIMEOUT", "OUT_OF_MEMORY")
ASKED_FOR = (*SLOW_DOWN, "Retry")
HELD, ENDED = ("assigned", "executing"), ("completed", "failed", "cancelled", "dead_letter")
REVIVALS = {"retry": (ENDED[1:], "retried"), "replay": (ENDED[3:], "replayed")}
ENDS = {"complete": ("completed", "succeeded"), "fail": ("failed", "not_retriable"), "discard": (ENDED[3], "discarded")}


class Refused(Exception):
    """The code of the refusal, and the state it names."""


class ModelTask:
    def __init__(self, draft: Draft, now: int) -> None:
        self.draft, self.priority = draft, draft.priority
        offset_ms, retries, timeout_ms = LEVELS[draft.priority]
        self.max_retries = retries if draft.max_retries is None else draft.max_retries
        self.timeout_ms = draft.timeout_ms or timeout_ms
        self.rank = now + draft.delay_ms + offset_ms - draft.head_start_ms
        self.hidden = _only(now + draft.delay_ms) if draft.delay_ms else None  # until one of these instants
        self.state = self.reason = self.lease = self.worker = ""
        self.version = self.attempt = self.retries = self.losses = self.deliveries = self.started_ms = 0
        self.settled: tuple[object, ...] = ()
        self.is_forgotten = False  # by the store, once history has it


BAD = ("draining", "unhealthy")


class Model:
    def __init__(self, now: int) -> None:
        self.now, self.tasks = now, dict[str, ModelTask]()
        self.silent_at, self.standing = dict[str, int](), dict[str, str]()  # by living worker
        self.words = dict[str, str]()  # what each of them says of itself
        self.circuits = dict[tuple[str, str], Circuit]()  # by worker and task type
        self.pauses, self.limits = dict[str, int](), dict[str, int]()  # by task type, or * for all
        self.keys: dict[str, tuple[ModelTask, int]] = {}
        self.polls: dict[tuple[str, str], tuple[int, list[tuple[str, str]]]] = {}
        self.fired: Counter[str] = Counter()

    def submit(self, drafts: list[Draft]) -> list[ModelTask]:
        """Each draft's task: a new one, or the one its key stands for."""
        keys = {key: known for key, known in self.keys.items() if known[1] > self.now}
        tasks: list[ModelTask] = []
        for draft in drafts:
            task, until = keys.get(draft.key) or (ModelTask(draft, self.now), self.now + given.KEY_TTL_MS)
            if task.draft != draft:
                raise Refused("idempotency-conflict")
            if not 0 <= task.rank <= MAX_RANK:
                raise Refused("rank-out-of-range")
            keys |= {draft.key: (task, until)} if draft.key else {}
            tasks.append(task)
        for task in dict.fromkeys(task for task in tasks if not task.state):
            self._move(task, "submit", "queued", "submitted", task.hidden)
        self.keys = keys
        return tasks

    def cancel(self, task_id: str) -> str:
        task = self._find(task_id, ("queued", *HELD))
        reply = f"ok {task.state} {task.worker}" if task.state in HELD else "ok queued"
        self._move(task, "cancel", "cancelled", "cancelled")
        return reply

    def revive(self, verb: str, task_id: str, priority: str | None, keeps_budgets: bool, has_copy: bool) -> str:
        """A copy from history is used where the store has forgotten the task."""
        sources, reason = REVIVALS[verb]
        task = self._find(task_id, sources, reaches_history=has_copy)
        if priority:
            task.priority, (_, task.max_retries, task.timeout_ms) = priority, LEVELS[priority]
        if not keeps_budgets:
            task.retries = task.losses = task.deliveries = 0
        task.rank = self.now + LEVELS[task.priority].offset_ms - task.draft.head_start_ms
        task.worker, task.settled, task.is_forgotten = "", (), False
        self._move(task, verb, "queued", reason)
        return f"ok {task.version}"

    def purge(self, task_id: str) -> str:
        task = self._find(task_id, ENDED)
        self.keys = {key: known for key, known in self.keys.items() if known[0] is not task}
        del self.tasks[task_id]
        return "ok"

    def claim(
        self, name: str, wanted: int, poll: str, answer: int, got: list[tuple[str, str]], *, starts: bool
    ) -> None:
        self.silent_at[name] = self.now + given.HEARTBEAT_MS
        self.recover(most_workers=1)
        number, kept = self.answered(name, poll, starts=starts)
        assert got == kept or not kept, f"poll {poll} held {kept}"
        assert len(got) <= max(wanted, len(kept)), f"{name} may have {wanted} and got {got}"
        for task_id, lease in () if kept else got:
            ready, task = self.takeable(name), self.tasks[task_id]
            lane = [place for place in ready if self.tasks[place[1]].draft.lane == task.draft.lane]
            assert lane[:1] == [(task.rank, task_id)], f"{task_id} was taken before {lane}"
            assert task.rank == ready[0][0], f"{task_id} was taken before {ready}"
            task.attempt, task.worker, task.lease = task.attempt + 1, name, lease
            self._move(task, "claim", "assigned", "claimed", _only(self.now + given.ASSIGNMENT_MS))
            if starts:
                self._start(task)
        assert kept or len(got) == wanted or not self.takeable(name), f"not handed out: {self.takeable(name)}"
        assert answer == (number + 1 if poll else 0), f"poll {poll} was answered {number} times"
        self.polls |= {(name, poll): (answer, got)} if poll else {}

    def answered(self, name: str, poll: str, *, starts: bool) -> tuple[int, list[tuple[str, str]]]:
        number, got = self.polls.get((name, poll), (0, []))
        states = HELD if starts else ("assigned",)
        held = {(task_id, task.lease) for task_id, task in self.tasks.items() if task.state in states}
        return number, [handed for handed in got if handed in held]

    def hand_back(self, task: ModelTask) -> None:
        task.attempt -= task.state == "assigned"
        self._move(task, "release", "queued", "released")

    def say(self, verb: str, name: str, task_id: str, lease: str, amount: float = 0, *said: object) -> str:
        """What a lease holder says; of a result, `said` is the code and the body, and the amount its jitter."""
        task = self._find(task_id)
        if task.settled[:-1] == (verb, lease, *said):
            return f"ok {task.settled[-1]}"
        if (lease, name) != (task.lease, task.worker):
            raise Refused(f"stale-lease {task.state}")
        self._find(task_id, HELD if verb in ("start", "release") else ("executing",))
        if verb == "release":
            self.hand_back(task)
        elif verb == "extend" and task.hidden:
            latest = min(self.now + int(amount), task.started_ms + given.MAX_EXECUTION_MS)
            task.hidden = _only(max(task.hidden.start, latest))
        elif verb == "start" and task.state == "assigned":
            self._start(task)
        elif said:
            self._settle(task, verb, str(said[0]), amount, amount)
            task.settled = (verb, lease, *said, task.state)
        return f"ok {task.hidden.start if verb in ('start', 'extend') and task.hidden else task.state}"

    def _start(self, task: ModelTask) -> None:
        task.started_ms = self.now
        self._move(task, "start", "executing", "started", _only(self.now + task.timeout_ms))

    def recover(self, most_workers: int | None = None) -> None:
        """What is due comes back at its own price, then what silent workers held."""
        silent = sorted((at, name) for name, at in self.silent_at.items() if at <= self.now)
        buried = [name for _, name in silent[:most_workers]]
        held_count = Counter(task.worker for task in self.tasks.values() if task.state in HELD)
        for task in self.tasks.values():
            is_due = task.hidden is not None and task.hidden.start <= self.now
            if task.state == "queued" and is_due:
                task.hidden = None
            elif task.state == "assigned" and (is_due or task.worker in buried):
                task.deliveries, task.attempt = task.deliveries + 1, task.attempt - 1
                self._spend(task, "lapse", task.deliveries < given.MAX_DELIVERIES, "assignment_lapsed", "never_started")
            elif task.state == "executing" and is_due:
                self._settle(task, "time_out", "TIMEOUT", -1, 1)
            elif task.state == "executing" and task.worker in buried:
                task.losses += 1
                instants = range(self.now + STAGGER_MS, self.now + STAGGER_MS * held_count[task.worker] + 1, STAGGER_MS)
                self._spend(task, "lose", task.losses < given.MAX_LOSSES, "worker_lost", "poison", instants)
        self.silent_at = {name: at for name, at in self.silent_at.items() if name not in buried}

    def _circuit(self, name: str, task_type: str) -> Circuit:
        return self.circuits.setdefault((name, task_type), Circuit(self.fired))

    def _may_have(self, name: str, task_type: str) -> bool:
        held = [task for task in self.tasks.values() if task.state in HELD and task.worker == name]
        held_count = sum(task.draft.task_type == task_type for task in held)
        return self._circuit(name, task_type).left(self.now, held_count) > 0

    def _settle(self, task: ModelTask, verb: str, code: str, low: float, high: float) -> None:
        is_asked_for = verb == "retry" and code in ASKED_FOR
        if verb in ("complete", "retry", "time_out") and not is_asked_for:  # other failures are the task's fault
            self._circuit(task.worker, task.draft.task_type).note(self.now, verb == "complete")
        if verb in ENDS:
            return self._move(task, "fail" if verb == "discard" else verb, *ENDS[verb])
        base_ms, multiplier, cap_ms = task.draft.backoff
        delay_ms = min(base_ms * multiplier**task.retries * (2 if code in SLOW_DOWN else 1), cap_ms)
        first, last = (self.now + int(delay_ms * (1 + 0.2 * jitter)) for jitter in (low, high))
        is_left = task.retries < task.max_retries
        task.retries += is_left
        if is_left and code in MORE_TIME:
            task.timeout_ms = max(task.timeout_ms, min(task.timeout_ms * 3 // 2, MAX_RAISED_TIMEOUT_MS))
        verb, reason = ("time_out", "timed_out") if verb == "time_out" else ("fail", "error")
        return self._spend(task, verb, is_left, reason, "retries_exhausted", range(first, last + 1))

    def _spend(self, task: ModelTask, verb: str, is_left: bool, why: str, end: str, until: range | None = None) -> None:
        self._move(task, verb, *(("queued", why) if is_left else ("dead_letter", end)), until if is_left else None)

    def _move(self, task: ModelTask, verb: str, state: str, reason: str, hidden: range | None = None) -> None:
        task.state, task.reason, task.hidden, task.version = state, reason, hidden, task.version + 1
        task.lease = "" if state == "queued" else task.lease
        self.fired[f"{verb} → {state}"] += 1

    def _find(self, task_id: str, states: tuple[str, ...] = (), *, reaches_history: bool = False) -> ModelTask:
        task = self.tasks.get(task_id)
        if task is None or (task.is_forgotten and not reaches_history):
            raise Refused("task-not-found")
        if states and task.state not in states:
            raise Refused(f"wrong-state {task.state}")
        return task

    def status(self, name: str) -> str:
        """As bad as what is found about it, or as what it says, whichever is worse."""
        return next((bad for bad in BAD if bad in (self.standing[name], self.words[name])), "active")

    def takeable(self, name: str) -> list[tuple[int, str]]:
        """Ranks and ids of what the worker may take now, best first."""
        types, has = given.PROFILES[name]
        held = [task.draft.task_type for task in self.tasks.values() if task.state in HELD]
        running = Counter([*held, *["*"] * len(held)])
        shut = {scope for scope, most in self.limits.items() if running[scope] >= most}
        shut |= {scope for scope, until in self.pauses.items() if until > self.now}
        return sorted(
            (task.rank, task_id)
            for task_id, task in self.tasks.items()
            if task.state == "queued" and task.hidden is None and self.status(name) == "active"
            if (types is None or task.draft.task_type in types) and set(task.draft.needs) <= set(has)
            if not shut & {"*", task.draft.task_type} and self._may_have(name, task.draft.task_type)
        )


def _only(instant: int) -> range:
    return range(instant, instant + 1)
