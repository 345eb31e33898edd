"""A task's definition as columns: what everyone has and reads apart, the rest as one JSON text, `{}` for most tasks."""

from collections.abc import Iterable
from typing import Any

import msgspec
import structlog

from tideq.queue_core.engine.submission import pack_definition, unpack_definition
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.task import ANONYMOUS, Definition, TraceContext

NOTHING = b"{}"
TWO_VALUES = b"\x92"

log = structlog.get_logger(__name__)


class Attributes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Persisted as JSON: add fields with defaults, never rename one."""

    required_capabilities: tuple[str, ...] = ()
    tags: dict[str, str] | None = None
    trace: TraceContext | None = None
    client_id: str = ANONYMOUS
    idempotency_key: str | None = None
    run_at_ms: int | None = None
    head_start_ms: int = 0
    backoff: Backoff | None = None
    searchable: dict[str, str] | None = None


FIELDS = Attributes.__struct_fields__
decode_attributes = msgspec.json.Decoder(Attributes).decode
encode_json = msgspec.json.Encoder().encode

unpack = unpack_definition


def is_plain(packed_definition: bytes) -> bool:
    """Whether it is nothing but a type and parameters, seen from how many values it has."""
    return packed_definition[:1] == TWO_VALUES


def attributes_text(definition: Definition) -> bytes:
    return encode_json(Attributes(*(getattr(definition, name) for name in FIELDS)))


def packed_record(text: str) -> bytes:
    """A record as the store had it: history keeps it with unit separators, because no text can hold zero bytes."""
    return text.replace("\x1f", "\0").encode()


def joined(task_type: str, parameters: bytes, attributes: str | bytes) -> Definition:
    return Definition(task_type, parameters, *msgspec.structs.astuple(decode_attributes(attributes)))


def known_definitions(rows: Iterable[tuple[Any, ...]]) -> dict[str, Definition]:
    """Of rows of `some_tasks`, by their tasks, as far as they can be read."""
    known: dict[str, Definition] = {}
    for task_id, task_type, parameters, attributes, *_ in rows:
        try:
            known[task_id] = joined(task_type, parameters.encode(), attributes)
        except ValueError as error:
            log.error("definition not read from history", task_id=task_id, problem=str(error))
    return known


def packed(task_type: str, parameters: bytes, attributes: str | bytes) -> bytes:
    """As the store had it."""
    return pack_definition(joined(task_type, parameters, attributes))
