"""A task's definition as columns: what everyone has and reads apart, the rest as one JSON text, `{}` for most tasks."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import structlog

from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.submission import pack_definition, unpack_definition
from tideq.queue_core.task import ANONYMOUS, Definition, TraceContext

NOTHING = b"{}"
TWO_VALUES = b"\x92"

log = structlog.get_logger(__name__)


class Attributes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Persisted as JSON. Never add, rename or remove one: what later versions add to a definition goes to `later`."""

    required_capabilities: tuple[str, ...] = ()
    tags: dict[str, str] | None = None
    trace: TraceContext | None = None
    client_id: str = ANONYMOUS
    idempotency_key: str | None = None
    run_at_ms: int | None = None
    head_start_ms: int = 0
    backoff: Backoff | None = None
    searchable: dict[str, str] | None = None
    later: tuple[bytes, ...] = ()
    """What follows in a definition, value by value as it came: a version that does not know it keeps it by this."""


class Kept(NamedTuple):
    """A definition, and how the store has it, with all that a later version may have put there."""

    definition: Definition
    packed: bytes


FIELDS = Attributes.__struct_fields__[:-1]
KNOWN_COUNT = len(Definition.__struct_fields__)
KNOWN_VALUES = bytes((0x90 + KNOWN_COUNT,))
"""What a definition begins with that has all the values this version knows; more values begin with a larger byte."""
decode_attributes = msgspec.json.Decoder(Attributes).decode
decode_values = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
encode_json = msgspec.json.Encoder().encode

unpack = unpack_definition


def is_plain(packed_definition: bytes) -> bool:
    """Whether it is nothing but a type and parameters, seen from how many values it has."""
    return packed_definition[:1] == TWO_VALUES


def attributes_text(definition: Definition, packed_definition: bytes) -> bytes:
    return encode_json(Attributes(*(getattr(definition, name) for name in FIELDS), later=_later(packed_definition)))


def _later(packed_definition: bytes) -> tuple[bytes, ...]:
    if packed_definition[:1] <= KNOWN_VALUES:
        return ()
    return tuple(map(bytes, decode_values(packed_definition)[KNOWN_COUNT:]))


def packed_record(text: str) -> bytes:
    """A record as the store had it: history keeps it with unit separators, because no text can hold zero bytes."""
    return text.replace("\x1f", "\0").encode()


def joined(task_type: str, parameters: bytes, attributes: str | bytes) -> Definition:
    return _definition(task_type, parameters, decode_attributes(attributes))


def _definition(task_type: str, parameters: bytes, attributes: Attributes) -> Definition:
    return Definition(task_type, parameters, *(getattr(attributes, name) for name in FIELDS))


def kept(task_type: str, parameters: bytes, attributes: str | bytes) -> Kept:
    decoded = decode_attributes(attributes)
    definition = _definition(task_type, parameters, decoded)
    return Kept(definition, pack_definition(definition, decoded.later))


def kept_definitions(rows: Iterable[tuple[Any, ...]]) -> dict[str, Kept]:
    """Of rows of `some_tasks`, by their tasks, as far as they can be read."""
    known: dict[str, Kept] = {}
    for task_id, task_type, parameters, attributes, *_ in rows:
        try:
            known[task_id] = kept(task_type, parameters.encode(), attributes)
        except ValueError as error:
            log.error("definition not read from history", task_id=task_id, problem=str(error))
    return known


def packed(task_type: str, parameters: bytes, attributes: str | bytes) -> bytes:
    """As the store had it."""
    return kept(task_type, parameters, attributes).packed
