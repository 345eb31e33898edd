"""Validates submissions and turns them into rows of the submit script. Writes nothing."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from tideq.queue_core.errors import InvalidTask, UnknownPriority
from tideq.queue_core.lanes import lane_signature
from tideq.queue_core.scripts.replies import instant, text
from tideq.queue_core.settings import Priority, QueueSettings
from tideq.queue_core.task import Definition, NewTask, RateLimitState, Submitted, TraceContext
from tideq.queue_core.task_id import TaskIds, made_together
from tideq.queue_core.validation import check_kind, check_own

NO_TRACE = TraceContext()

encode = msgspec.msgpack.Encoder().encode
unpack_definition = msgspec.msgpack.Decoder(Definition).decode
DEFAULTS = msgspec.structs.astuple(Definition("", b""))
MAX_CACHED_KINDS = 1_000
"""Clients choose the kinds, so the cache is bounded; it is cleared when full."""


class SubmitKind(NamedTuple):
    """Values shared by tasks of a batch: a line of `submit.lua`'s `kinds`."""

    signature: str
    priority: str
    urgency: int
    offset_ms: int
    max_retries: int
    timeout_ms: int
    backoff: str


class CachedKind(NamedTuple):
    """Prepared values of tasks with the same type, priority and options."""

    kind: SubmitKind
    rest: tuple[Any, ...]
    """The definition's values after type and parameters, for a task without tags, trace, schedule or key."""


class Prepared(NamedTuple):
    """A checked task."""

    task_id: str
    kind: SubmitKind
    schedule: str
    idempotency: str
    definition: bytes
    has_own_id: bool = False


class SubmitRows(NamedTuple):
    """The arguments of `submit.lua`."""

    numbers: dict[SubmitKind, int]
    rows: list[Any]
    """Flat: three values a task."""
    has_own_ids: bool

    @property
    def kinds(self) -> str:
        return "\n".join(" ".join(map(str, kind)) for kind in self.numbers)


class Submissions:
    """Prepares submissions under the settings, with new ids; one for each queue."""

    def __init__(self, settings: QueueSettings, ids: TaskIds) -> None:
        self._settings = settings
        self._ids = ids
        self._cached_kinds: dict[object, CachedKind] = {}
        offsets = {name: level.offset_ms for name, level in settings.priorities.items()}
        self._top_offset = min(offsets.values())
        self._default_offset = offsets[settings.default_priority]

    def prepare(self, tasks: Sequence[NewTask], *, as_one: bool = False) -> list[Prepared]:
        """Returns the tasks checked; raises InvalidTask with the index of the first bad one.

        With `as_one` the tasks share an idempotency key, which the last one carries: a key for each would cost the
        store 21 µs and 950 bytes a task, one for all of them costs 7 µs and 480 bytes.
        """
        prepared: list[Prepared] = []
        max_payload_bytes = self._settings.admission.max_payload_bytes
        ids = self._ids.many(len(tasks), self._settings.partition)
        try:
            for task, new_id in zip(tasks, ids, strict=True):
                check_own(task, max_payload_bytes)
                cached = self._cached_kind(task)
                prepared.append(_prepared(task, new_id, cached, None if as_one else task.idempotency_key))
        except InvalidTask as error:
            error.row = len(prepared)
            raise
        if as_one:
            prepared[-1] = prepared[-1]._replace(idempotency=_shared_idempotency(tasks))
        return prepared

    def _cached_kind(self, task: NewTask) -> CachedKind:
        """Checked and computed once for equal options, which halves the time of a submission here."""
        options = (
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
            cached = self._cached_kinds.get(options)
        except TypeError:
            # Unhashable: a list of capabilities, or a value of a wrong type, which the check in `_kind` reports.
            return CachedKind(self._kind(task), _rest(task))
        if cached is None:
            if len(self._cached_kinds) >= MAX_CACHED_KINDS:
                self._cached_kinds.clear()
            cached = self._cached_kinds[options] = CachedKind(self._kind(task), _rest(task))
        return cached

    def _kind(self, task: NewTask) -> SubmitKind:
        check_kind(task, self._settings.leases.max_execution_ms)
        name = task.priority or self._settings.default_priority
        level = self.level(name)
        return SubmitKind(
            signature=lane_signature(task.task_type, task.required_capabilities),
            priority=name,
            urgency=self._urgency(level),
            offset_ms=level.offset_ms - task.head_start_ms,
            max_retries=level.max_retries if task.max_retries is None else task.max_retries,
            timeout_ms=level.timeout_ms if task.timeout_ms is None else task.timeout_ms,
            backoff=_backoff(task),
        )

    def urgency_of(self, priority: str | None) -> int:
        """Returns the class of depth limits for tasks of this priority: see `_urgency`."""
        return self._urgency(self.level(priority or self._settings.default_priority))

    def level(self, priority: str) -> Priority:
        if priority not in self._settings.priorities:
            raise UnknownPriority(priority, tuple(self._settings.priorities))
        return self._settings.priorities[priority]

    def _urgency(self, level: Priority) -> int:
        """Returns 0 for the most urgent level, 1 down to the default level, 2 for less urgent levels."""
        if level.offset_ms == self._top_offset:
            return 0
        return 1 if level.offset_ms <= self._default_offset else 2


def share_one_key(tasks: Sequence[NewTask]) -> bool:
    """Whether the tasks are a whole batch under one idempotency key."""
    return all(task.batch_size == len(tasks) and task.task_id is None for task in tasks)


def in_rows(prepared: Sequence[Prepared]) -> SubmitRows:
    """Returns the script's arguments; values that tasks share are written once."""
    numbers: dict[SubmitKind, int] = {}
    rows: list[Any] = []
    last_kind, kind_number, has_own_ids = None, "", False
    for task_id, kind, schedule, idempotency, definition, has_own_id in prepared:
        if kind is not last_kind:
            last_kind, kind_number = kind, str(numbers.setdefault(kind, len(numbers) + 1))
        is_plain = not schedule and not idempotency
        rows += (task_id, kind_number if is_plain else f"{kind_number} {schedule} {idempotency}", definition)
        has_own_ids = has_own_ids or has_own_id
    return SubmitRows(numbers, rows, has_own_ids)


def pack_definition(definition: Definition, later: Sequence[bytes] = ()) -> bytes:
    """Returns the packed definition without trailing defaults, which unpacking restores.

    `later` are packed values of a later version, which follow unchanged.
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
    """Returns the part of the store key for an idempotency key: a hash of client and key, so clients never collide."""
    return hashlib.sha256(f"{client_id}\0{key}".encode()).hexdigest()[:32]


def _prepared(task: NewTask, new_id: str, cached: CachedKind, key: str | None) -> Prepared:
    """The short cut for tasks with parameters only takes a third of the time."""
    is_special = (
        key is not None or task.tags or task.searchable or task.task_id or task.delay_ms or task.run_at_ms is not None
    )
    if not is_special and task.trace == NO_TRACE:
        return Prepared(new_id, cached.kind, "", "", encode((task.task_type, task.parameters, *cached.rest)))
    return Prepared(
        task.task_id or new_id,
        cached.kind,
        _schedule(task),
        "" if key is None else f"{idempotency_name(task.client_id, key)} {_fingerprint(_content(task))}",
        _packed(_definition(task, key)),
        task.task_id is not None,
    )


def _definition(task: NewTask, key: str | None) -> tuple[Any, ...]:
    """Returns the values of a `Definition` in its order, which a test compares; a struct would take twice as long."""
    capabilities = task.required_capabilities
    return (
        task.task_type,
        task.parameters,
        tuple(sorted(set(capabilities))) if capabilities else (),
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
    """The star marks a key that covers the whole batch, not only the task that carries it."""
    name = idempotency_name(tasks[-1].client_id, tasks[-1].idempotency_key or "")
    return f"{name} *{_fingerprint([_content(task) for task in tasks])}"


def _content(task: NewTask) -> tuple[Any, ...]:
    """Returns all submitted values except the trace, for the fingerprint."""
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


def merged_answers(
    prepared: Sequence[Prepared], batch: SubmitRows, answers: Sequence[Any], now_ms: int, bucket: RateLimitState | None
) -> list[Submitted]:
    """Merge the script's answers into the prepared tasks. A task without an answer is new and ranks as its kind does.

    An answer is `row|id` for an existing task, `row|id|rank|visible|position` for a task with values of its own, and
    `*kind|position` for the first task of a kind without an answer: the others follow it in the lane.
    """
    by_row, positions = dict[int, str](), dict[int, int]()
    for each in answers:
        row_or_kind, _, answer = text(each).partition("|")
        if row_or_kind[0] == "*":
            positions[int(row_or_kind[1:])] = int(answer)
        else:
            by_row[int(row_or_kind) - 1] = answer
    submitted: list[Submitted] = []
    for row, (task_id, kind, *_) in enumerate(prepared):
        if row in by_row:
            submitted.append(_parse_submitted(by_row[row], now_ms, bucket))
            continue
        position = None
        if positions:
            position = positions[batch.numbers[kind]]
            positions[batch.numbers[kind]] += 1
        submitted.append(Submitted(task_id, True, now_ms + kind.offset_ms, None, position, now_ms, bucket))
    return submitted


def _parse_submitted(answer: str, now_ms: int, bucket: RateLimitState | None) -> Submitted:
    task_id, _, placed = answer.partition("|")
    rank, visible_at, position = map(instant, placed.split("|")) if placed else (None, None, None)
    return Submitted(task_id, bool(placed), rank, visible_at, position, now_ms, bucket)


def of_repeated_batch(submitted: Sequence[Submitted]) -> list[Submitted]:
    """The ids of a batch submitted before under one key: the script returns the id of its last task only."""
    ids = made_together(submitted[-1].task_id, len(submitted))
    return [msgspec.structs.replace(each, task_id=own_id) for each, own_id in zip(submitted, ids, strict=True)]
