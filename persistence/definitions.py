"""A task's definition as columns: type and parameters apart, the rest as one JSON text, `{}` for most tasks."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import structlog

from tideq.persistence.database import Connection, statement
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.submission import pack_definition, unpack_definition
from tideq.queue_core.task import ANONYMOUS, Definition, TraceContext

NO_ATTRIBUTES = b"{}"
TWO_VALUES = b"\x92"

log = structlog.get_logger(__name__)


class Attributes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Persisted as JSON. Never add, rename or remove a field: values that later versions add go to `later`."""

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
    """Further values of a definition, as they came: an older version keeps what a later one added."""


class StoredDefinition(NamedTuple):
    """A definition, and its bytes in the store, with all values that a later version may have added."""

    definition: Definition
    packed: bytes


FIELDS = Attributes.__struct_fields__[:-1]
VALUE_COUNT = len(Definition.__struct_fields__)
ARRAY_OF_VALUES = bytes((0x90 + VALUE_COUNT,))
"""The first byte of a definition with all values of this version; with more values the byte is larger."""
decode_attributes = msgspec.json.Decoder(Attributes).decode
decode_values = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
encode_json = msgspec.json.Encoder().encode

unpack = unpack_definition


def is_plain(packed_definition: bytes) -> bool:
    """Returns whether the definition has only a type and parameters, by its number of values."""
    return packed_definition[:1] == TWO_VALUES


def attributes_text(definition: Definition, packed_definition: bytes) -> bytes:
    return encode_json(Attributes(*(getattr(definition, name) for name in FIELDS), later=_later(packed_definition)))


def _later(packed_definition: bytes) -> tuple[bytes, ...]:
    if packed_definition[:1] <= ARRAY_OF_VALUES:
        return ()
    return tuple(map(bytes, decode_values(packed_definition)[VALUE_COUNT:]))


def packed_record(text: str) -> bytes:
    """Returns the record as the store had it: columns use unit separators, because no text can hold zero bytes."""
    return text.replace("\x1f", "\0").encode()


def definition_of_columns(task_type: str, parameters: bytes, attributes: str | bytes) -> Definition:
    return _definition(task_type, parameters, decode_attributes(attributes))


def _definition(task_type: str, parameters: bytes, attributes: Attributes) -> Definition:
    return Definition(task_type, parameters, *(getattr(attributes, name) for name in FIELDS))


def stored_definition(task_type: str, parameters: bytes, attributes: str | bytes) -> StoredDefinition:
    decoded = decode_attributes(attributes)
    definition = _definition(task_type, parameters, decoded)
    return StoredDefinition(definition, pack_definition(definition, decoded.later))


async def definitions_in_history(connection: Connection, task_ids: Sequence[str]) -> dict[str, StoredDefinition]:
    """Returns the readable definitions of these tasks, by task id; logs the others."""
    found = await connection.execute(statement("some_tasks"), (list(task_ids),))
    definitions: dict[str, StoredDefinition] = {}
    for task_id, task_type, parameters, attributes, *_ in await found.fetchall():
        try:
            definitions[task_id] = stored_definition(task_type, parameters.encode(), attributes)
        except ValueError as error:
            log.error("definition not read from history", task_id=task_id, problem=str(error))
    return definitions


def packed_of_columns(task_type: str, parameters: bytes, attributes: str | bytes) -> bytes:
    return stored_definition(task_type, parameters, attributes).packed
