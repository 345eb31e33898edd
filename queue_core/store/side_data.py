"""The store's side data: access keys, pauses and limits, workers, the format. Read and restored as a whole.

History keeps a copy in case the store is lost. Statistics of the last hour, rate limits and replies to polls are not
copied.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.replies import accepted, number, text
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.store.connect import store_errors

NAMES = ("access_keys", "controls", "fleet", "format")
WORKER_FIELDS = ("state", "profile", "capacity", "registered_ms", "d")
"""Fields copied of a worker: its declaration and state, not its health or recovery."""
NOTHING = b"\x80"
FIRST_FORMAT = b"\x01"

Fields = dict[str, bytes]
decode_fields = msgspec.msgpack.Decoder(Fields).decode
decode_number = msgspec.msgpack.Decoder(int).decode
decode_fleet = msgspec.msgpack.Decoder(dict[str, Fields]).decode


async def read_side_data(scripts: Scripts) -> dict[str, bytes]:
    """Returns the side data by name, packed so that equal content gives equal bytes."""
    access_keys, controls, fleet, written = accepted(await scripts.call("side_data", is_bulk=True))
    workers = {text(fleet[i]): _declared(_fields(fleet[i + 1])) for i in range(0, len(fleet), 2)}
    contents = (_fields(access_keys), _fields(controls), workers, number(written))
    return {name: msgspec.msgpack.encode(each, order="sorted") for name, each in zip(NAMES, contents, strict=True)}


async def read_format(client: Any, keys: Keys) -> int:
    """Returns the format of the store's data; 1 if the store is empty."""
    with store_errors():
        return number(await client.hget(keys.key("meta"), "format") or 1)


async def put_side_data(client: Any, keys: Keys, side_data: dict[str, bytes], heartbeat_due_ms: int) -> None:
    """Restore side data into an empty store; every worker's next heartbeat is due at `heartbeat_due_ms`."""
    for name in ("access_keys", "controls"):
        if content := decode_fields(side_data.get(name, NOTHING)):
            await client.hset(keys.key(name), mapping=content)
    if (written := decode_number(side_data.get("format", FIRST_FORMAT))) > 1:
        await client.hset(keys.key("meta"), "format", written)
    for worker_id, fields in decode_fleet(side_data.get("fleet", NOTHING)).items():
        await client.hset(keys.prefix("worker") + worker_id, mapping=fields)
        await client.zadd(keys.key("workers"), {worker_id: heartbeat_due_ms})


def _fields(flat: Sequence[bytes]) -> Fields:
    return {text(flat[i]): flat[i + 1] for i in range(0, len(flat), 2)}


def _declared(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if name in WORKER_FIELDS}
