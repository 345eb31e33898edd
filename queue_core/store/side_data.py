"""The store's side data: access keys, pauses and limits, workers, the format. Read and restored as a whole.

History keeps a copy in case the store is lost. Statistics of the last hour, rate limits and replies to polls are not
copied.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.replies import accepted, lossy_text, number, text_or_none
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.store.driver_errors import store_errors
from tideq.queue_core.store.formats import FIRST_FORMAT, unknown_format

NAMES = ("access_keys", "controls", "fleet", "format")
WORKER_FIELDS = ("state", "profile", "capacity", "registered_ms", "d")
"""Fields copied of a worker: its declaration and state, not its health or recovery."""
NOTHING = b"\x80"

Fields = dict[str, bytes]
_decode_parts = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_decode_value = msgspec.msgpack.Decoder(bytes).decode
_decode_fields = msgspec.msgpack.Decoder(Fields).decode
_decode_number = msgspec.msgpack.Decoder(int).decode

T = TypeVar("T")

log = structlog.get_logger(__name__)


async def read_side_data(scripts: Scripts) -> dict[str, bytes]:
    """Returns side data by name, packed so that equal content gives equal bytes, without names that are not text."""
    access_keys, controls, fleet, written = accepted(await scripts.call("side_data", is_bulk=True))
    workers = {worker_id: _declared(_fields("worker", each)) for worker_id, each in _fields("workers", fleet).items()}
    contents = (_fields("access_keys", access_keys), _fields("controls", controls), workers, number(written))
    return {name: msgspec.msgpack.encode(each, order="sorted") for name, each in zip(NAMES, contents, strict=True)}


async def read_format(client: Any, keys: Keys) -> int:
    """Returns the format of the store's data, and the first one if the store is empty.

    Raises StoreFormatUnknown if it is not a number.
    """
    with store_errors():
        epoch, written = await client.hmget(keys.key("meta"), "epoch", "format")
    found = lossy_text(written or (b"1" if epoch else b"%d" % FIRST_FORMAT))
    if not found.isdecimal():
        raise unknown_format(found)
    return int(found)


def stored_format(content: bytes) -> int | None:
    """Returns the format in history's copy; logs and returns None if it cannot be read."""
    return _readable(content, _decode_number, "format")


async def put_side_data(client: Any, keys: Keys, side_data: dict[str, bytes], heartbeat_due_ms: int) -> None:
    """Restore side data into an empty store; every worker's next heartbeat is due at `heartbeat_due_ms`.

    Data that cannot be read is left out by itself: one worker, one key, or all of a name if not even its parts can be
    separated.
    """
    for name in ("access_keys", "controls"):
        if content := _parts(name, side_data.get(name, NOTHING), _decode_value):
            await client.hset(keys.key(name), mapping=content)
    if "format" in side_data and (written := stored_format(side_data["format"])):
        await client.hset(keys.key("meta"), "format", written)
    for worker_id, fields in _parts("fleet", side_data.get("fleet", NOTHING), _decode_fields).items():
        if fields:
            await client.hset(keys.prefix("worker") + worker_id, mapping=fields)
            await client.zadd(keys.key("workers"), {worker_id: heartbeat_due_ms})


def _parts(of: str, content: bytes, decode: Callable[[msgspec.Raw], T]) -> dict[str, T]:
    """The parts that can be read, by name."""
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
    names = (text_or_none(each, of) for each in flat[::2])
    return {name: value for name, value in zip(names, flat[1::2], strict=True) if name is not None}


def _declared(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if name in WORKER_FIELDS}
