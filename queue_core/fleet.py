"""The fleet: workers join, stay alive, drain, are judged and leave.

Recovering what a dead worker held is not here: whichever script finds it due does it.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Literal

import msgspec
import structlog

from tideq.queue_core.circuits import HeldBack, circuit_word, parse_circuits
from tideq.queue_core.errors import InvalidRequest
from tideq.queue_core.lanes import worker_profile
from tideq.queue_core.names import NAME
from tideq.queue_core.queue import parse_stops
from tideq.queue_core.scripts.replies import accepted, instant, number, number_or_zero, shown, text
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.task import Stop, WorkerDeclaration

log = structlog.get_logger(__name__)

DISMISS_LIMIT = 200
WORKER_STATUSES = ("active", "draining", "unhealthy", "dead")
MAX_PAGE = 500
LISTED_TASKS = 20
"""Ids of held tasks in a list of workers; of one worker all are read."""
ALL_TASKS = 100_000

Word = Literal["active", "draining", "unhealthy"]
"""What a worker says of itself."""


class Heartbeat(msgspec.Struct, frozen=True):
    """The answer to one: what to abandon, and whether to take no more work."""

    now_ms: int
    should_drain: bool
    stops: tuple[Stop, ...]
    held_back: tuple[HeldBack, ...] = ()


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as the store has it. A dead one is remembered for an hour."""

    worker: WorkerDeclaration
    status: str
    """Of both: draining if either says so, else unhealthy if either says so. Only an active worker gets new work."""
    verdict: str
    """What the service found: drained by an operator, unhealthy by its probes, dead by its silence."""
    word: str
    """What the worker said last, or `leaving`."""
    held_count: int
    task_ids: tuple[str, ...]
    """Of what it holds, in order; in a list some of them where they are many."""
    current_load: int | None
    """How many tasks it said it works on; none where it never did."""
    probe_failures: int
    """In a row, as far as the monitor has come."""
    registered_at_ms: int
    since_ms: int
    """When its status became what it is."""
    heartbeat_due_at_ms: int | None
    """Given up once this has passed; of a dead one, the deadline it missed."""
    died_at_ms: int | None
    health: bytes
    """As it last reported it, a JSON object; empty where it never did."""
    held_back: tuple[HeldBack, ...]
    """The task types it gets nothing of, because it failed too often at them, or a few to try."""

    @property
    def reason(self) -> str | None:
        """Why it gets no new work."""
        match self.status:
            case "dead":
                return "heartbeat_missed"
            case "draining" if self.verdict == "draining":
                return "leaving" if self.word == "leaving" else "drained_by_operator"
            case "draining":
                return "draining_by_itself"
            case "unhealthy":
                return "probe_failed" if self.verdict == "unhealthy" else "unhealthy_by_itself"
            case _:
                return None

    @property
    def circuit(self) -> str:
        return circuit_word(self.held_back)

    @property
    def circuit_open_until_ms(self) -> int | None:
        """When the first of its circuits is tried."""
        return min((each.until_ms for each in self.held_back if each.until_ms is not None), default=None)


class FleetPage(msgspec.Struct, frozen=True):
    now_ms: int
    members: tuple[Member, ...]
    next_after: str
    """Where the next page begins; empty after the last. A page may be short, or empty, and not be the last."""


class Fleet:
    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts

    async def register(self, worker: WorkerDeclaration) -> None:
        _check(worker)
        reply = await self.scripts.call(
            "register",
            worker_id=worker.worker_id,
            profile=worker_profile(worker.task_types, worker.capabilities),
            description=msgspec.json.encode(worker),
            capacity=worker.capacity,
        )
        accepted(reply)

    async def get(self, worker_id: str) -> Member:
        """One worker with all it holds, also one that died within the hour."""
        reply = await self.scripts.call("describe", is_bulk=True, worker_id=worker_id, most_tasks=ALL_TASKS)
        return _member(accepted(reply)[1])

    async def heartbeat(
        self, worker_id: str, health: bytes = b"", *, word: Word | None = None, load: int | None = None
    ) -> Heartbeat:
        """What is left out stands as it was said last."""
        reply = await self.scripts.call(
            "heartbeat",
            worker_id=worker_id,
            health=health,
            word=word or "",
            load="" if load is None else load,
        )
        now, drains, stops, circuits = accepted(reply)
        return Heartbeat(number(now), number(drains) == 1, parse_stops(stops), parse_circuits(text(circuits)))

    async def drain(self, worker_id: str) -> None:
        """No new work; what it holds it may finish."""
        await self.set_state(worker_id, "draining")

    async def set_health(self, worker_id: str, is_healthy: bool) -> str:
        """An unhealthy worker gets no new work and keeps what it holds; returns its status now."""
        return await self.set_state(worker_id, "active" if is_healthy else "unhealthy")

    async def members(
        self, statuses: Collection[str] = (), *, after: str = "", limit: int = 100, most_tasks: int = 0
    ) -> FleetPage:
        """Workers in the order of their ids, of the given statuses or of all; with so many ids of what each holds."""
        self.check_page(statuses, limit)
        reply = await self.scripts.call(
            "fleet", is_bulk=True, after=after, statuses=",".join(statuses), limit=limit, most_tasks=most_tasks
        )
        now, next_after, rows = accepted(reply)
        return FleetPage(number(now), tuple(_member(row) for row in rows), text(next_after))

    def check_page(self, statuses: Collection[str], limit: int) -> None:
        if unknown := sorted(set(statuses) - set(WORKER_STATUSES)):
            raise InvalidRequest("status", f"{unknown[0]!r} is not one of {', '.join(WORKER_STATUSES)}")
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidRequest("limit", f"{limit} lies outside 1 … {MAX_PAGE}")

    async def all(self, statuses: Collection[str] = ()) -> AsyncIterator[Member]:
        """All pages, one worker after the other."""
        after = ""
        while True:
            page = await self.members(statuses, after=after, limit=MAX_PAGE)
            for member in page.members:
                yield member
            if not page.next_after:
                return
            after = page.next_after

    async def remove(self, worker_id: str) -> int:
        """The worker leaves; all it holds goes back free of charge. Returns how many tasks that were."""
        released, left = 0, 1
        while left:
            reply = await self.scripts.call("dismiss", worker_id=worker_id, limit=DISMISS_LIMIT)
            moved, left = map(number, accepted(reply))
            released += moved
        return released

    async def set_state(self, worker_id: str, verdict: Word | None, probe_failures: int | None = None) -> str:
        """What the service found, if anything, and how many probes in a row failed by now; returns its status now."""
        reply = await self.scripts.call(
            "judge",
            worker_id=worker_id,
            verdict=verdict or "",
            probe_failures="" if probe_failures is None else probe_failures,
        )
        return text(accepted(reply)[0])


def _member(row: Sequence[Any]) -> Member:
    (worker_id, status, verdict, word, description, registered, since, due, died, *more) = row
    health, load, probe_failures, held, task_ids, circuits = more
    registered_at_ms = _known(registered, "registered_ms") or 0
    died_at_ms = _known(died, "died_ms")
    return Member(
        worker=_worker(text(worker_id), description),
        status=text(status),
        verdict=text(verdict),
        word=text(word),
        held_count=number(held),
        task_ids=tuple(sorted(map(text, task_ids))),
        current_load=_known(load, "load"),
        probe_failures=_known(probe_failures, "probe_failures") or 0,
        registered_at_ms=registered_at_ms,
        since_ms=died_at_ms or _known(since, "since_ms") or registered_at_ms,
        heartbeat_due_at_ms=instant(due),
        died_at_ms=died_at_ms,
        health=health or b"",
        held_back=parse_circuits(shown(circuits)),
    )


def _known(value: Any, of: str) -> int | None:
    return number_or_zero(value, of) if value else None


def _worker(worker_id: str, description: bytes) -> WorkerDeclaration:
    """With nothing but its id where it did not say more, or that cannot be read."""
    try:
        return (
            msgspec.json.decode(description, type=WorkerDeclaration)
            if description
            else WorkerDeclaration(worker_id=worker_id)
        )
    except msgspec.DecodeError as error:
        log.error("what a worker declared cannot be read", worker_id=worker_id, problem=str(error))
        return WorkerDeclaration(worker_id=worker_id)


def _check(worker: WorkerDeclaration) -> None:
    names: Sequence[tuple[str, Sequence[Any]]] = (
        ("worker_id", (worker.worker_id,)),
        ("task_types", worker.task_types or ()),
        ("capabilities", worker.capabilities),
    )
    for field, values in names:
        for value in values:
            if not NAME.fullmatch(value):
                raise InvalidRequest(field, f"{value!r} is not a name: letters, digits, '_', '.', '-', at most 64")
    if worker.task_types is not None and not worker.task_types:
        raise InvalidRequest("task_types", "name at least one, or leave it out to take any")
    if not 1 <= worker.capacity <= 10_000:
        raise InvalidRequest("capacity", f"{worker.capacity} lies outside 1 … 10 000")
