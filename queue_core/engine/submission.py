"""From a submission to the row the submit script takes. Refuses what no store should see; writes nothing."""

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tideq.queue_core.errors import InvalidTask, PayloadTooLarge, UnknownPriority
from tideq.queue_core.lanes import lane_signature
from tideq.queue_core.settings import Priority, QueueSettings
from tideq.queue_core.task import Definition, NewTask, TraceContext
from tideq.queue_core.task_id import TaskIds, is_task_id

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}")
NO_TRACE = TraceContext()
MAX_CAPABILITIES = 16
MAX_TAGS = 32
MAX_TAG_LENGTH = 256
MAX_KEY_LENGTH = 255
MAX_SPAN_MS = 2**42

pack_definition = msgspec.msgpack.Encoder().encode
unpack_definition = msgspec.msgpack.Decoder(Definition).decode


class Kind(NamedTuple):
    """What tasks of one batch share: a line of `submit.lua`'s `kinds`."""

    signature: str
    priority: str
    urgency: int
    offset_ms: int
    max_retries: int
    timeout_ms: int
    backoff: str


class Row(NamedTuple):
    """The columns of `submit.lua`, in its order; a test compares the two."""

    task_id: str
    kind_number: int
    schedule: str
    idempotency: str
    definition: bytes


class Batch(NamedTuple):
    kinds: str
    rows: list[Row]


class Submissions:
    """Knows the settings and makes ids; one per queue."""

    def __init__(self, settings: QueueSettings) -> None:
        self._settings = settings
        self._ids = TaskIds(settings.partition)
        offsets = {name: level.offset_ms for name, level in settings.priorities.items()}
        self._top_offset = min(offsets.values())
        self._default_offset = offsets[settings.default_priority]

    def batch(self, tasks: Sequence[NewTask]) -> Batch:
        numbers: dict[Kind, int] = {}
        rows: list[Row] = []
        for task in tasks:
            self._check(task)
            kind = self._kind(task)
            rows.append(self._row(task, numbers.setdefault(kind, len(numbers) + 1)))
        return Batch("\n".join(" ".join(map(str, kind)) for kind in numbers), rows)

    def _kind(self, task: NewTask) -> Kind:
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

    def _row(self, task: NewTask, kind_number: int) -> Row:
        return Row(
            task_id=task.task_id or self._ids.new(),
            kind_number=kind_number,
            schedule=_schedule(task),
            idempotency=_idempotency(task),
            definition=pack_definition(_definition(task)),
        )

    def level(self, priority: str) -> Priority:
        if priority not in self._settings.priorities:
            raise UnknownPriority(priority, tuple(self._settings.priorities))
        return self._settings.priorities[priority]

    def _urgency(self, level: Priority) -> int:
        """0 for the most urgent level, 1 for those above the default, 2 for ordinary work."""
        if level.offset_ms == self._top_offset:
            return 0
        return 1 if level.offset_ms < self._default_offset else 2

    def _check(self, task: NewTask) -> None:
        _check_types(task)
        _check_names(task)
        _check_numbers(task, self._settings.leases.max_execution_ms)
        max_bytes = self._settings.admission.max_payload_bytes
        if len(task.parameters) > max_bytes:
            raise PayloadTooLarge("parameters", len(task.parameters), max_bytes)


def idempotency_name(client_id: str, key: str) -> str:
    """Keys are hashed before they become part of a key's name, and one client's never meet another's."""
    return hashlib.sha256(f"{client_id}\0{key}".encode()).hexdigest()[:32]


def _check_types(task: NewTask) -> None:
    expected: tuple[tuple[str, object, type | tuple[type, ...]], ...] = (
        ("task_type", task.task_type, str),
        ("parameters", task.parameters, bytes),
        ("priority", task.priority, (str, type(None))),
        ("idempotency_key", task.idempotency_key, (str, type(None))),
        ("client_id", task.client_id, str),
        ("required_capabilities", task.required_capabilities, (tuple, list)),
        ("tags", task.tags, dict),
    )
    for field, value, kinds in expected:
        if not isinstance(value, kinds):
            raise InvalidTask(field, f"{type(value).__name__} is the wrong type")
    for field in ("timeout_ms", "max_retries", "run_at_ms", "delay_ms", "head_start_ms"):
        value = getattr(task, field)
        if value is not None and type(value) is not int:
            raise InvalidTask(field, f"{value!r} is not a whole number")


def _check_names(task: NewTask) -> None:
    for field, names in (
        ("task_type", (task.task_type,)),
        ("required_capabilities", task.required_capabilities),
        ("tags", task.tags),
        ("client_id", (task.client_id,)),
    ):
        for name in names:
            if not NAME.fullmatch(name):
                raise InvalidTask(field, f"{name!r} is not a name: letters, digits, '_', '.', '-', at most 64")
    if len(task.required_capabilities) > MAX_CAPABILITIES or len(task.tags) > MAX_TAGS:
        raise InvalidTask("tags" if len(task.tags) > MAX_TAGS else "required_capabilities", "too many of them")
    if any(len(value) > MAX_TAG_LENGTH for value in task.tags.values()):
        raise InvalidTask("tags", f"a value is longer than {MAX_TAG_LENGTH} characters")
    if task.task_id is not None and not is_task_id(task.task_id):
        raise InvalidTask("task_id", f"{task.task_id!r} is not a UUIDv7 in lower case with dashes")


def _check_numbers(task: NewTask, max_execution_ms: int) -> None:
    limits = (
        ("timeout_ms", 1, max_execution_ms),
        ("max_retries", 0, 1000),
        ("run_at_ms", 0, MAX_SPAN_MS),
        ("delay_ms", 0, MAX_SPAN_MS),
        ("head_start_ms", -MAX_SPAN_MS, MAX_SPAN_MS),
    )
    for field, low, high in limits:
        value = getattr(task, field)
        if value is not None and not low <= value <= high:
            raise InvalidTask(field, f"{value} lies outside {low} … {high}")
    if task.run_at_ms is not None and task.delay_ms is not None:
        raise InvalidTask("run_at", "give either run_at or a delay, not both")
    if task.idempotency_key is not None and not 1 <= len(task.idempotency_key) <= MAX_KEY_LENGTH:
        raise InvalidTask("idempotency_key", f"must have 1 … {MAX_KEY_LENGTH} characters")


def _definition(task: NewTask) -> Definition:
    return Definition(
        task_type=task.task_type,
        parameters=task.parameters,
        required_capabilities=tuple(sorted(set(task.required_capabilities))),
        tags=dict(task.tags) or None,
        trace=None if task.trace == NO_TRACE else task.trace,
        client_id=task.client_id,
        idempotency_key=task.idempotency_key,
        run_at_ms=task.run_at_ms,
        head_start_ms=task.head_start_ms,
        backoff=task.backoff,
    )


def _backoff(task: NewTask) -> str:
    backoff = task.backoff
    if backoff is None:
        return ""
    if backoff.base_ms < 0 or backoff.cap_ms < 0 or not 0 < backoff.multiplier <= 1000:
        raise InvalidTask("backoff", "needs a base and a cap of at least 0 and a multiplier between 0 and 1000")
    return f"{backoff.base_ms},{backoff.multiplier},{backoff.cap_ms}"


def _schedule(task: NewTask) -> str:
    if task.delay_ms:
        return f"+{task.delay_ms}"
    return "" if task.run_at_ms is None else str(task.run_at_ms)


def _idempotency(task: NewTask) -> str:
    """The key's name, and a fingerprint of everything asked for, but not of the trace it was asked in."""
    if task.idempotency_key is None:
        return ""
    content = msgspec.structs.replace(task, trace=NO_TRACE, task_id=None)
    fingerprint = hashlib.sha256(msgspec.msgpack.encode(content)).hexdigest()[:32]
    return f"{idempotency_name(task.client_id, task.idempotency_key)} {fingerprint}"
