"""From a submission to the row the submit script takes. Refuses what no store should see; writes nothing."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from tideq.queue_core.engine.checks import check_kind, check_own
from tideq.queue_core.errors import InvalidTask, UnknownPriority
from tideq.queue_core.lanes import lane_signature
from tideq.queue_core.settings import Priority, QueueSettings
from tideq.queue_core.task import Definition, NewTask, TraceContext
from tideq.queue_core.task_id import TaskIds

NO_TRACE = TraceContext()

encode = msgspec.msgpack.Encoder().encode
unpack_definition = msgspec.msgpack.Decoder(Definition).decode
DEFAULTS = msgspec.structs.astuple(Definition("", b""))
MAX_KNOWN = 1_000
"""Clients choose what kinds there are: more than this are worked out again."""


class Kind(NamedTuple):
    """What tasks of one batch share: a line of `submit.lua`'s `kinds`."""

    signature: str
    priority: str
    urgency: int
    offset_ms: int
    max_retries: int
    timeout_ms: int
    backoff: str


class Known(NamedTuple):
    """What tasks that look alike have in common."""

    kind: Kind
    rest: tuple[Any, ...]
    """What follows type and parameters in the definition of one that has nothing else of its own."""


class Prepared(NamedTuple):
    """A task that was checked."""

    task_id: str
    kind: Kind
    schedule: str
    idempotency: str
    definition: bytes
    has_own_id: bool = False


class Batch(NamedTuple):
    """As `submit.lua` takes it."""

    numbers: dict[Kind, int]
    rows: list[Any]
    """Flat."""
    has_own_ids: bool

    @property
    def kinds(self) -> str:
        return "\n".join(" ".join(map(str, kind)) for kind in self.numbers)


class Submissions:
    """Knows the settings and makes ids; one per queue."""

    def __init__(self, settings: QueueSettings, ids: TaskIds) -> None:
        self._settings = settings
        self._ids = ids
        self._known: dict[object, Known] = {}
        offsets = {name: level.offset_ms for name, level in settings.priorities.items()}
        self._top_offset = min(offsets.values())
        self._default_offset = offsets[settings.default_priority]

    def prepare(self, tasks: Sequence[NewTask], *, as_one: bool = False) -> list[Prepared]:
        """Refuses what no store should see, with its place.

        `as_one` are tasks that share a key, and only the last one has it: a key for each costs the store 21 µs and 950
        bytes a task, one for all of them 7 and 480.
        """
        prepared: list[Prepared] = []
        max_payload_bytes = self._settings.admission.max_payload_bytes
        ids = self._ids.many(len(tasks), self._settings.partition)
        try:
            for task, new_id in zip(tasks, ids, strict=True):
                check_own(task, max_payload_bytes)
                known = self._known_of(task)
                prepared.append(_prepared(task, new_id, known, None if as_one else task.idempotency_key))
        except InvalidTask as error:
            error.row = len(prepared)
            raise
        if as_one:
            prepared[-1] = prepared[-1]._replace(idempotency=_shared_idempotency(tasks))
        return prepared

    def _known_of(self, task: NewTask) -> Known:
        """Checked and worked out once for all tasks that look alike: half of a submission's time here."""
        look = (
            task.task_type,
            task.required_capabilities,
            task.priority,
            task.client_id,
            task.timeout_ms,
            task.max_retries,
            task.head_start_ms,
            task.backoff,
        )
        try:
            known = self._known.get(look)
        except TypeError:
            # Unhashable: a list of capabilities, or a value of a wrong type that the check will name.
            return Known(self._kind(task), _rest(task))
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[look] = Known(self._kind(task), _rest(task))
        return known

    def _kind(self, task: NewTask) -> Kind:
        check_kind(task, self._settings.leases.max_execution_ms)
        name = task.priority or self._settings.default_priority
        level = self.level(name)
        return Kind(
            signature=lane_signature(task.task_type, task.required_capabilities),
            priority=name,
            urgency=self._urgency(level),
            offset_ms=level.offset_ms - task.head_start_ms,
            max_retries=level.max_retries if task.max_retries is None else task.max_retries,
            timeout_ms=level.timeout_ms if task.timeout_ms is None else task.timeout_ms,
            backoff=_backoff(task),
        )

    def urgency_of(self, priority: str | None) -> int:
        """Which depth limits bind tasks of this level: see `_urgency`."""
        return self._urgency(self.level(priority or self._settings.default_priority))

    def level(self, priority: str) -> Priority:
        if priority not in self._settings.priorities:
            raise UnknownPriority(priority, tuple(self._settings.priorities))
        return self._settings.priorities[priority]

    def _urgency(self, level: Priority) -> int:
        """0 for the most urgent level, 1 down to the default, 2 for what is less urgent than that."""
        if level.offset_ms == self._top_offset:
            return 0
        return 1 if level.offset_ms <= self._default_offset else 2


def share_one_key(tasks: Sequence[NewTask]) -> bool:
    """Whether they are the whole of a batch that has one idempotency key and no other."""
    return all(task.batch_size == len(tasks) and task.task_id is None for task in tasks)


def in_rows(prepared: Sequence[Prepared]) -> Batch:
    """What they share is written once."""
    numbers: dict[Kind, int] = {}
    rows: list[Any] = []
    last_kind, about, has_own_ids = None, "", False
    for task_id, kind, schedule, idempotency, definition, has_own_id in prepared:
        if kind is not last_kind:
            last_kind, about = kind, str(numbers.setdefault(kind, len(numbers) + 1))
        is_plain = not schedule and not idempotency
        rows += (task_id, about if is_plain else f"{about} {schedule} {idempotency}", definition)
        has_own_ids = has_own_ids or has_own_id
    return Batch(numbers, rows, has_own_ids)


def pack_definition(definition: Definition, later: Sequence[bytes] = ()) -> bytes:
    """Without the defaults at its end, which reading fills in again: most tasks have a type and parameters only.

    `later` are values that follow, packed, which only a later version knows.
    """
    values = msgspec.structs.astuple(definition)
    return encode((*values, *map(msgspec.Raw, later))) if later else _packed(values)


def _packed(values: tuple[Any, ...]) -> bytes:
    return encode(_shortened(values))


def _shortened(values: tuple[Any, ...]) -> tuple[Any, ...]:
    end = len(values)
    while end > 2 and values[end - 1] == DEFAULTS[end - 1]:
        end -= 1
    return values[:end]


def idempotency_name(client_id: str, key: str) -> str:
    """Keys are hashed before they become part of a key's name, and one client's never meet another's."""
    return hashlib.sha256(f"{client_id}\0{key}".encode()).hexdigest()[:32]


def _prepared(task: NewTask, new_id: str, known: Known, key: str | None) -> Prepared:
    """Most have nothing of their own but parameters, and take a third of the time."""
    is_special = (
        key is not None or task.tags or task.searchable or task.task_id or task.delay_ms or task.run_at_ms is not None
    )
    if not is_special and task.trace == NO_TRACE:
        return Prepared(new_id, known.kind, "", "", encode((task.task_type, task.parameters, *known.rest)))
    return Prepared(
        task.task_id or new_id,
        known.kind,
        _schedule(task),
        "" if key is None else f"{idempotency_name(task.client_id, key)} {_fingerprint(_content(task))}",
        _packed(_definition(task, key)),
        task.task_id is not None,
    )


def _definition(task: NewTask, key: str | None) -> tuple[Any, ...]:
    """The values of a `Definition`, in its order, as a test compares: making the struct first takes twice as long."""
    wanted = task.required_capabilities
    return (
        task.task_type,
        task.parameters,
        tuple(sorted(set(wanted))) if wanted else (),
        dict(task.tags) if task.tags else None,
        None if task.trace == NO_TRACE else task.trace,
        task.client_id,
        key,
        task.run_at_ms,
        task.head_start_ms,
        task.backoff,
        dict(task.searchable) if task.searchable else None,
    )


def _rest(task: NewTask) -> tuple[Any, ...]:
    plain = msgspec.structs.replace(task, tags={}, trace=NO_TRACE, run_at_ms=None, searchable={})
    return _shortened(_definition(plain, None))[2:]


def _backoff(task: NewTask) -> str:
    backoff = task.backoff
    return f"{backoff.base_ms},{backoff.multiplier},{backoff.cap_ms}" if backoff else ""


def _schedule(task: NewTask) -> str:
    if task.delay_ms:
        return f"+{task.delay_ms}"
    return "" if task.run_at_ms is None else str(task.run_at_ms)


def _shared_idempotency(tasks: Sequence[NewTask]) -> str:
    """The star says that it stands for more than the task that has it."""
    name = idempotency_name(tasks[-1].client_id, tasks[-1].idempotency_key or "")
    return f"{name} *{_fingerprint([_content(task) for task in tasks])}"


def _content(task: NewTask) -> tuple[Any, ...]:
    """Everything asked for, but not the trace it was asked in."""
    return (
        task.task_type,
        task.parameters,
        task.priority,
        sorted(set(task.required_capabilities)) if task.required_capabilities else (),
        task.timeout_ms,
        task.max_retries,
        task.run_at_ms,
        task.delay_ms,
        task.idempotency_key,
        task.tags,
        task.backoff,
        task.head_start_ms,
        task.batch_size,
    )


def _fingerprint(content: Any) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(content, order="sorted")).hexdigest()[:32]
