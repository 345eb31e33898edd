"""What the store holds besides tasks: access keys, pauses and limits, the fleet, its format. Read and put back whole.

History keeps a copy for the day the store is lost. Statistics of the last hour, rate buckets and unanswered polls are
not worth keeping.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.engine.replies import accepted, known_text, number, shown
from tideq.queue_core.engine.scripts import Scripts
from tideq.queue_core.engine.store import store_errors
from tideq.queue_core.errors import StoreTooNew

NAMES = ("access_keys", "controls", "fleet", "format")
WORKER_FIELDS = ("state", "profile", "capacity", "registered_ms", "d")
"""What a worker declared and is; its health and its recovery are of the moment."""
NOTHING = b"\x80"
FIRST_FORMAT = b"\x01"

Fields = dict[str, bytes]
_decode_parts = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_decode_value = msgspec.msgpack.Decoder(bytes).decode
_decode_fields = msgspec.msgpack.Decoder(Fields).decode
_decode_number = msgspec.msgpack.Decoder(int).decode

T = TypeVar("T")

log = structlog.get_logger(__name__)


async def read_belongings(scripts: Scripts) -> dict[str, bytes]:
    """By name, packed so that equal content is equal bytes. What has no text for its name is left out."""
    access_keys, controls, fleet, written = accepted(await scripts.call("belongings", is_bulk=True))
    workers = {worker_id: _declared(_fields("worker", each)) for worker_id, each in _fields("workers", fleet).items()}
    contents = (_fields("access_keys", access_keys), _fields("controls", controls), workers, number(written))
    return {name: msgspec.msgpack.encode(each, order="sorted") for name, each in zip(NAMES, contents, strict=True)}


async def read_format(client: Any, keys: Keys) -> int:
    """In which format the store is written; 1 also where it is empty. Raises StoreTooNew where it is no number."""
    with store_errors():
        written = shown(await client.hget(keys.key("meta"), "format") or 1)
    if not written.isdecimal():
        raise StoreTooNew(written)
    return int(written)


def kept_format(content: bytes) -> int | None:
    """As history kept it; None, and told, where that cannot be read."""
    return _readable(content, _decode_number, "format")


async def put_belongings(client: Any, keys: Keys, belongings: dict[str, bytes], heartbeat_due_ms: int) -> None:
    """Into a store that has none; every worker has until then to say that it lives.

    What cannot be read is left out by itself: one worker, one key, or all of a name where not even its parts can be
    told apart. A store that stayed closed for it would harm everybody.
    """
    for name in ("access_keys", "controls"):
        if content := _parts(name, belongings.get(name, NOTHING), _decode_value):
            await client.hset(keys.key(name), mapping=content)
    if (written := kept_format(belongings.get("format", FIRST_FORMAT))) and written > 1:
        await client.hset(keys.key("meta"), "format", written)
    for worker_id, fields in _parts("fleet", belongings.get("fleet", NOTHING), _decode_fields).items():
        if fields:
            await client.hset(keys.prefix("worker") + worker_id, mapping=fields)
            await client.zadd(keys.key("workers"), {worker_id: heartbeat_due_ms})


def _parts(of: str, content: bytes, decode: Callable[[msgspec.Raw], T]) -> dict[str, T]:
    """Those that can be read, by their names."""
    parts = _readable(content, _decode_parts, of) or {}
    read = {name: _readable(part, decode, f"{of}: {name}") for name, part in parts.items()}
    return {name: each for name, each in read.items() if each is not None}


def _readable(content: Any, decode: Callable[[Any], T], of: str) -> T | None:
    try:
        return decode(content)
    except ValueError as error:
        log.error("not restored: history's copy cannot be read", of=of, problem=str(error))
        return None


def _fields(of: str, flat: Sequence[Any]) -> dict[str, Any]:
    names = (known_text(each, of) for each in flat[::2])
    return {name: value for name, value in zip(names, flat[1::2], strict=True) if name is not None}


def _declared(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if name in WORKER_FIELDS}
