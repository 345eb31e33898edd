"""What workers do at random: claim, and say things about their attempts in time, late, twice, or without the right."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from hypothesis import note

from tests.model.bench import ComparedQueue, foretell, said
from tests.model.model import ENDED, HELD
from tests.model.rules_producers import UNKNOWN_ID, Aim, some_aims
from tests.model.situation import PROFILES
from tideq.queue_core.attempts import AttemptVerb, Extension, Failure, LeaseRef, ProgressReport, Success

EXECUTING = ("executing",)
AIMS = ("fit", "fit", "fit", "fit", "over", "over", "over", "any", "forged", "borrowed", "unknown")


class Ticket(NamedTuple):
    """A lease as its worker got it; workers keep them long after they have ended."""

    worker: str
    task_id: str
    lease: str


class Result(NamedTuple):
    """An accepted result, to be sent again: the rule that sent it, by whom, about what, and the rest of it."""

    send: Callable[..., None]
    ticket: Ticket
    words: tuple[Any, ...]


WORKERS = tuple(PROFILES)
POLLS = ("", "first", "second")
BODIES = (b"1", b"2")
CODES = ("", "", "RATE_LIMIT", "TEMPORARY_UNAVAILABLE", "TIMEOUT", "OUT_OF_MEMORY")
JITTERS = (-1, 0, 0.5)
EXTENSIONS_MS = (1_000, 100_000, 6_000_000)
VERDICTS: tuple[AttemptVerb, ...] = ("retry", "retry", "retry", "fail", "discard")


class WorkerRules(ComparedQueue):
    tickets: list[Ticket]
    results: list[Result]

    def claim(self, dice: Random) -> None:
        self.take(dice.choice(WORKERS), dice.randint(1, 5), dice.choice(POLLS), starts=dice.random() < 0.1)

    def work(self, dice: Random) -> None:
        self.take(dice.choice(list(self.model.silent_at) or WORKERS), dice.randint(1, 5))
        self.start_all(dice)

    def poll_again(self, dice: Random) -> None:
        """The answer was lost: the same poll once more, perhaps for more."""
        worker, poll = dice.choice(WORKERS), dice.choice(POLLS)
        starts = dice.random() < 0.25
        self.take(worker, dice.randint(1, 3), poll, starts=starts)
        self.take(worker, dice.randint(1, 5), poll, starts=starts or dice.random() < 0.2)

    def take(self, worker: str, wanted: int, poll: str = "", *, starts: bool = False) -> None:
        claim = self.ask(self.kit.queue.claim(worker, wanted, poll_id=poll, starts=starts))
        if isinstance(claim, str) or worker not in self.model.silent_at:
            return self.agree("claim", claim, "unknown-worker")
        got = [(task.task_id, task.lease) for task in claim.tasks]
        note(f"{worker} wants {wanted} (poll {poll or 'without id'}{', started' * starts}) and gets {got}")
        self.model.claim(worker, wanted, poll, claim.answer, got, starts=starts)
        self.tickets += [Ticket(worker, *handed) for handed in got]
        return self.agree("claim", claim.should_drain, self.model.standing[worker] == "draining")

    def withdraw(self, dice: Random) -> None:
        """Take back the last answer to a poll, or try to take back one before it."""
        worker, poll, is_late = dice.choice(WORKERS), dice.choice(POLLS), dice.random() < 0.5
        starts = dice.random() < 0.5
        self.take(worker, dice.randint(1, 3), poll, starts=starts)
        number, kept = self.model.answered(worker, poll, starts=starts)
        undone = [] if is_late else kept
        withdrawn = self.wait(self.kit.queue.undo_claim(worker, poll, number - is_late, starts=starts))
        self.agree("withdraw", withdrawn, len(undone))
        for task_id, _ in undone:
            self.model.hand_back(self.model.tasks[task_id])

    def start(self, dice: Random) -> None:
        self.speak(
            "start", self.kit.attempts.start, LeaseRef, self.choose(some_aims(dice, AIMS, most=5), ("assigned",))
        )

    def start_all(self, dice: Random) -> None:
        """As a healthy worker does with all it was given."""
        first = dice.randrange(1000)
        aims = [Aim("fit", first + number) for number in range(5)]
        if any(task.state == "assigned" for task in self.model.tasks.values()):
            self.speak("start", self.kit.attempts.start, LeaseRef, self.choose(aims, ("assigned",)))

    def extend(self, dice: Random) -> None:
        extension_ms = dice.choice(EXTENSIONS_MS)

        def row(task_id: str, lease: str) -> Extension:
            return Extension(task_id, lease, extension_ms)

        tickets = self.choose(some_aims(dice, AIMS, most=5), EXECUTING)
        self.speak("extend", self.kit.attempts.extend, row, tickets, extension_ms)

    def progress(self, dice: Random) -> None:
        def row(task_id: str, lease: str) -> ProgressReport:
            return ProgressReport(task_id, lease, 1, 50.0)

        self.speak("progress", self.kit.attempts.progress, row, self.choose(some_aims(dice, AIMS, most=5), EXECUTING))

    def release(self, dice: Random) -> None:
        self.speak("release", self.kit.attempts.release, LeaseRef, self.choose(some_aims(dice, AIMS, most=5), HELD))

    def complete(self, dice: Random) -> None:
        self.send_success(self.choose(some_aims(dice, AIMS, most=5), EXECUTING), dice.choice(BODIES))

    def fail(self, dice: Random) -> None:
        tickets = self.choose(some_aims(dice, AIMS, most=5), EXECUTING)
        self.send_failure(tickets, dice.choice(VERDICTS), dice.choice(CODES), dice.choice(JITTERS), dice.choice(BODIES))

    def repeat_result(self, dice: Random) -> None:
        """An accepted result once more: answered like the first time, whatever has happened since."""
        if self.results:
            result = self.results[-1 - dice.randrange(1000) % min(len(self.results), 8)]
            result.send([result.ticket], *result.words)
            self.model.fired["result repeated"] += 1

    def send_success(self, tickets: list[Ticket], body: bytes) -> None:
        def row(task_id: str, lease: str) -> Success:
            return Success(task_id, lease, body)

        accepted = self.speak("complete", self.kit.attempts.complete, row, tickets, 0, "", body)
        self.results += [Result(self.send_success, ticket, (body,)) for ticket in accepted]

    def send_failure(self, tickets: list[Ticket], verdict: AttemptVerb, code: str, jitter: float, body: bytes) -> None:
        def row(task_id: str, lease: str) -> Failure:
            return Failure(task_id, lease, body, code, verdict, jitter)

        accepted = self.speak("fail", self.kit.attempts.fail, row, tickets, jitter, code, body, says=verdict)
        self.results += [Result(self.send_failure, ticket, (verdict, code, jitter, body)) for ticket in accepted]

    def speak(
        self, verb: str, send: Any, row: Callable[[str, str], Any], tickets: list[Ticket], *words: Any, says: str = ""
    ) -> list[Ticket]:
        """Say it for all tickets in one call, in the first one's name; returns those it was accepted for."""
        worker = tickets[0].worker
        note(f"{worker} says {says or verb} {words} about {[ticket[1:] for ticket in tickets]}")
        outcomes = self.wait(send(worker, [row(ticket.task_id, ticket.lease) for ticket in tickets]))
        for ticket, outcome in zip(tickets, outcomes, strict=True):
            expected = foretell(self.model.say, says or verb, worker, ticket.task_id, ticket.lease, *words)
            self.agree(verb, said(outcome), "ok" if expected == "ok executing" else expected)
        return [ticket for ticket, outcome in zip(tickets, outcomes, strict=True) if outcome.error is None]

    def choose(self, aims: list[Aim], states: tuple[str, ...]) -> list[Ticket]:
        """Tickets for one call, most of them in hands that the verb suits."""
        fit = [ticket for ticket in self.tickets if self.is_held(ticket, states)]
        holders = [ticket.worker for ticket in fit] or list(PROFILES)
        holder = holders[aims[0].number % len(holders)]
        speaker = WORKERS[WORKERS.index(holder) - 1] if aims[0].at == "borrowed" else holder
        return [self.ticket(aim, holder, fit)._replace(worker=speaker) for aim in aims]

    def ticket(self, aim: Aim, worker: str, fit: list[Ticket]) -> Ticket:
        own = [ticket for ticket in self.tickets if ticket.worker == worker]
        fit_for = {
            "fit": [ticket for ticket in fit if ticket.worker == worker],
            "over": [ticket for ticket in own if ticket not in fit and self.is_held(ticket, (*HELD, *ENDED))][-3:],
            "any": own,
            "forged": [ticket._replace(lease=ticket.lease + "0") for ticket in own],
            "borrowed": [ticket for ticket in fit if ticket.worker == worker],
        }
        unknown = [Ticket(worker, UNKNOWN_ID, "1-0-1")]
        candidates = unknown if aim.at == "unknown" else fit_for[aim.at] or own or unknown
        return candidates[aim.number % len(candidates)]

    def is_held(self, ticket: Ticket, states: tuple[str, ...]) -> bool:
        task = self.model.tasks.get(ticket.task_id)
        return task is not None and task.state in states and task.lease == ticket.lease
