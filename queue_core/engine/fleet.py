"""The fleet: workers join, stay alive, drain, are judged and leave.

Recovering what a dead worker held is not here: whichever script finds it due does it.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import structlog

from tideq.queue_core.circuits import HeldBack, circuit_word, parse_circuits
from tideq.queue_core.engine.queue import parse_stops
from tideq.queue_core.engine.replies import accepted, instant, known_number, number, shown, text
from tideq.queue_core.engine.scripts import Scripts
from tideq.queue_core.errors import InvalidRequest
from tideq.queue_core.lanes import worker_profile
from tideq.queue_core.names import NAME
from tideq.queue_core.task import Stop, Worker

log = structlog.get_logger(__name__)

DISMISS_LIMIT = 200
WORKER_STATES = ("active", "draining", "unhealthy", "dead")
MAX_PAGE = 500


class Described(NamedTuple):
    state: str
    worker: Worker


class Heartbeat(msgspec.Struct, frozen=True):
    """The answer to one: what to abandon, and whether to take no more work."""

    now_ms: int
    should_drain: bool
    stops: tuple[Stop, ...]
    held_back: tuple[HeldBack, ...] = ()


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as the store has it. A dead one is remembered for an hour."""

    worker: Worker
    state: str
    held_count: int
    registered_at_ms: int
    heartbeat_due_at_ms: int | None
    """Given up once this has passed; of a dead one, the deadline it missed."""
    died_at_ms: int | None
    health: bytes
    """As it last reported it, a JSON object; empty where it never did."""
    held_back: tuple[HeldBack, ...]
    """The task types it gets nothing of, because it failed too often at them, or a few to try."""

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

    async def register(self, worker: Worker) -> None:
        _check(worker)
        reply = await self.scripts.call(
            "register",
            worker_id=worker.worker_id,
            profile=worker_profile(worker.task_types, worker.capabilities),
            description=msgspec.json.encode(worker),
            capacity=worker.capacity,
        )
        accepted(reply)

    async def describe(self, worker_id: str) -> Described:
        """How a worker stands and what it declared, of one that is not given up."""
        state, description = accepted(await self.scripts.call("describe", worker_id=worker_id))
        return Described(text(state), _worker(worker_id, description))

    async def heartbeat(self, worker_id: str, health: bytes = b"") -> Heartbeat:
        reply = await self.scripts.call("heartbeat", worker_id=worker_id, health=health)
        now, drains, stops, circuits = accepted(reply)
        return Heartbeat(number(now), number(drains) == 1, parse_stops(stops), parse_circuits(text(circuits)))

    async def drain(self, worker_id: str) -> None:
        """No new work; what it holds it may finish."""
        await self.judge(worker_id, "draining")

    async def judge_health(self, worker_id: str, is_healthy: bool) -> str:
        """An unhealthy worker gets no new work and keeps what it holds; returns the state it is in now."""
        return await self.judge(worker_id, "active" if is_healthy else "unhealthy")

    async def members(self, states: Collection[str] = (), *, after: str = "", limit: int = 100) -> FleetPage:
        """Workers in the order of their ids, of the given states or of all."""
        self.check_page(states, limit)
        reply = await self.scripts.call("fleet", is_bulk=True, after=after, states=",".join(states), limit=limit)
        now, next_after, rows = accepted(reply)
        return FleetPage(number(now), tuple(_member(row) for row in rows), text(next_after))

    def check_page(self, states: Collection[str], limit: int) -> None:
        if unknown := sorted(set(states) - set(WORKER_STATES)):
            raise InvalidRequest("state", f"{unknown[0]!r} is not one of {', '.join(WORKER_STATES)}")
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidRequest("limit", f"{limit} lies outside 1 … {MAX_PAGE}")

    async def everyone(self, states: Collection[str] = ()) -> AsyncIterator[Member]:
        """All pages, one worker after the other."""
        after = ""
        while True:
            page = await self.members(states, after=after, limit=MAX_PAGE)
            for member in page.members:
                yield member
            if not page.next_after:
                return
            after = page.next_after

    async def dismiss(self, worker_id: str) -> int:
        """The worker leaves; all it holds goes back free of charge. Returns how many tasks that were."""
        released, left = 0, 1
        while left:
            reply = await self.scripts.call("dismiss", worker_id=worker_id, limit=DISMISS_LIMIT)
            moved, left = map(number, accepted(reply))
            released += moved
        return released

    async def judge(self, worker_id: str, verdict: Literal["active", "draining", "unhealthy"]) -> str:
        """Returns the state it is in now."""
        reply = await self.scripts.call("judge", worker_id=worker_id, verdict=verdict)
        return text(accepted(reply)[0])


def _member(row: Sequence[Any]) -> Member:
    worker_id, state, description, registered, due, health, died, held, circuits = row
    return Member(
        worker=_worker(text(worker_id), description),
        state=text(state),
        held_count=number(held),
        registered_at_ms=known_number(registered or 0, "registered_ms") or 0,
        heartbeat_due_at_ms=instant(due),
        died_at_ms=known_number(died, "died_ms") if died else None,
        health=health or b"",
        held_back=parse_circuits(shown(circuits)),
    )


def _worker(worker_id: str, description: bytes) -> Worker:
    """With nothing but its id where it did not say more, or that cannot be read."""
    try:
        return msgspec.json.decode(description, type=Worker) if description else Worker(worker_id=worker_id)
    except msgspec.DecodeError as error:
        log.error("what a worker declared cannot be read", worker_id=worker_id, problem=str(error))
        return Worker(worker_id=worker_id)


def _check(worker: Worker) -> None:
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
