"""Putting the store in order while it is closed: emptied, filled from history, opened under a new epoch.

The store is closed by an epoch that no one else has, and opened by the last step. Whoever is killed in between leaves
it closed, and the next one begins anew.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import structlog

from tideq.queue_core.engine.belongings import put_belongings
from tideq.queue_core.engine.clock import settled_time
from tideq.queue_core.engine.feed import Feed, last_entry_id
from tideq.queue_core.engine.identity import Bearing, bearing_of
from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.engine.policy import scripts_for
from tideq.queue_core.engine.queue import Removed
from tideq.queue_core.engine.reconnecting import connect_anew
from tideq.queue_core.engine.record import Record, readable_record
from tideq.queue_core.engine.replies import accepted, text
from tideq.queue_core.engine.store import node_of, store_errors
from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.states import TaskState

SPARE_MS = 31 * 86_400_000
"""From the end of an idempotency key by the queue's clock to its end by the server's, as in `keep_key.lua`."""

log = structlog.get_logger(__name__)

SEAL = "closed:"
LANES_PER_EPOCH = 1_000_000
WIPE_COUNT = 1_000


class StoreFacts(NamedTuple):
    """What a store says of itself. A sealed store has no epoch: it is half empty or half filled."""

    epoch: str
    identity: str
    known_identity: str
    """The run that was last found sound."""
    last_entry_id: str
    was_replica: bool = False

    @property
    def is_usable(self) -> bool:
        return bool(self.epoch) and not self.epoch.startswith(SEAL)

    @property
    def has_taken_over(self) -> bool:
        """From another server, and nobody has looked at this one yet."""
        return self.was_replica and self.identity != self.known_identity


class RestoredTask(NamedTuple):
    """A row of `restore.lua`. One that has ended needs no definition, and no signature."""

    task_id: str
    record: bytes
    definition: bytes
    signature: str


class KeptKey(NamedTuple):
    """An idempotency key: its name, and what the store keeps under it."""

    name: str
    value: str
    expires_at_ms: int


class Restoration:
    def __init__(self, client: Any, settings: QueueSettings, *, sends_flags: bool = True) -> None:
        self.partition = settings.partition
        self._client = client
        self._settings = settings
        self._keys = Keys(settings.queue_name, settings.partition)
        self._scripts = scripts_for(client, settings, sends_flags=sends_flags)
        self.feed = Feed(client, client, self._keys)

    async def connect_anew(self) -> None:
        await connect_anew(self._client)

    async def facts(self) -> StoreFacts:
        """The server's identity first: should another one answer what follows, entering an epoch will tell."""
        with store_errors():
            present = await self._bearing()
            epoch, known = await self._client.hmget(self._keys.key("meta"), "epoch", "identity")
            return StoreFacts(
                epoch=text(epoch or b""),
                identity=present.identity,
                was_replica=present.was_replica,
                known_identity=text(known or b""),
                last_entry_id=await last_entry_id(self._client, self._keys.key("outbox")),
            )

    async def enter(
        self, present: StoreFacts, epoch: str, least_now_ms: int = 0, *, gives_workers_time: bool = False
    ) -> None:
        """Open the store under this epoch, if it is still the one whose facts these are.

        Workers' last heartbeats may be among what was lost, and they could not send any since: they can be given time.
        """
        grace_ms = self._settings.leases.heartbeat_timeout_ms if gives_workers_time else 0
        await self._enter(present, epoch, least_now_ms, grace_ms)
        self._scripts.epoch = epoch

    async def seal(self, present: StoreFacts, least_now_ms: int = 0) -> StoreFacts:
        """Close the store to everyone but this process; returns its facts as they are then."""
        sealed = present._replace(epoch=SEAL + secrets.token_hex(8))
        await self._enter(present, sealed.epoch, least_now_ms, 0)
        self._scripts.epoch = sealed.epoch
        return sealed

    async def _enter(self, present: StoreFacts, epoch: str, least_now_ms: int, heartbeat_grace_ms: int) -> None:
        """A server that restarted meanwhile may have lost what was found or put there: it must be compared anew."""
        with store_errors():
            identity = (await self._bearing()).identity
        if identity != present.identity:
            raise StoreUnavailable("the store has restarted while it was compared with history")
        await self.now_ms()
        reply = await self._scripts.call(
            "enter_epoch",
            present_epoch=present.epoch,
            next_epoch=epoch,
            identity=identity,
            least_now_ms=least_now_ms,
            heartbeat_grace_ms=heartbeat_grace_ms,
            least_lanes_version=(int(epoch) if epoch.isdigit() else 0) * LANES_PER_EPOCH,
        )
        accepted(reply)

    async def _bearing(self) -> Bearing:
        return await bearing_of(self._client, await node_of(self._client, self._keys.key("meta")))

    async def wipe(self) -> None:
        """Everything but the seal; the outbox first, which has been written to history by now."""
        pattern, meta = re.sub(r"([*?\[\]\\{}])", r"\\\1", self._keys.tag) + "*", self._keys.key("meta")
        rows = [self._keys.key("outbox")]
        with store_errors():
            async for key in self._client.scan_iter(match=pattern, count=WIPE_COUNT):
                rows += [text(key)] if text(key) != meta else []
                if len(rows) >= WIPE_COUNT:
                    accepted(await self._scripts.call("wipe", rows=rows))
                    rows = []
        accepted(await self._scripts.call("wipe", rows=rows))

    async def put_tasks(self, tasks: Sequence[RestoredTask]) -> None:
        rows = [value for task in tasks for value in task]
        grace_ms = self._settings.leases.assignment_ms
        reply = await self._scripts.call(
            "restore", rows=rows, grace_ms=grace_ms, client_id="history", max_new_lanes=2_047
        )
        for task_id in accepted(reply)[1]:
            log.error("task not restored: its record cannot be read; history keeps it", task_id=text(task_id))

    async def remove(self, task_ids: Sequence[str]) -> None:
        """Tasks that were purged: as if they had ended, and their idempotency keys are free.

        One whose record cannot be read stays: it may be of a later version, and of a later life.
        """
        records = await self.records(task_ids) if task_ids else {}
        rows, keys = list[RestoredTask](), list[str]()
        for task_id, record in records.items():
            if record is None:
                continue
            ended = Record({**record.values, "state": TaskState.CANCELLED}).packed()
            rows.append(RestoredTask(task_id, ended, b"", ""))
            keys += Removed(task_id, record.text("idempotency"))
        if rows:
            await self.put_tasks(rows)
            accepted(await self._scripts.call("forget", rows=keys))

    async def put_errors(self, errors: Mapping[str, Mapping[int, bytes]]) -> None:
        """What earlier attempts failed with, by task and attempt."""
        pipeline = self._client.pipeline(transaction=False)
        for task_id, by_attempt in errors.items():
            notes = {f"e{attempt}": error for attempt, error in by_attempt.items()}
            pipeline.hset(self._keys.prefix("notes") + task_id, mapping=notes)
        with store_errors():
            await pipeline.execute()

    async def put_dead_letters(self, died_ms_by_id: Mapping[str, int]) -> None:
        if died_ms_by_id:
            with store_errors():
                await self._client.zadd(self._keys.key("dead"), died_ms_by_id)

    async def put_keys(self, keys: Sequence[KeptKey]) -> None:
        """As `keep_key.lua` keeps them."""
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            value, server_expiry_ms = f"{key.value} {key.expires_at_ms}", key.expires_at_ms + SPARE_MS
            pipeline.set(self._keys.prefix("idempotency") + key.name, value, pxat=server_expiry_ms)
            pipeline.zadd(self._keys.key("expiring"), {f"~{key.name}": key.expires_at_ms})
        with store_errors():
            await pipeline.execute()

    async def put_belongings(self, belongings: dict[str, bytes], heartbeat_due_ms: int) -> None:
        with store_errors():
            await put_belongings(self._client, self._keys, belongings, heartbeat_due_ms)

    async def now_ms(self) -> int:
        """By the store's clock, whether the store is open or not; waits while a jump of it is in doubt."""
        return await settled_time(self._scripts)

    async def records(self, task_ids: Sequence[str]) -> dict[str, Record | None]:
        """Of those tasks that the store has; None where the record cannot be read."""
        with store_errors():
            packed = await self._client.hmget(self._keys.key("records"), task_ids)
        return {task_id: readable_record(each) for task_id, each in zip(task_ids, packed, strict=True) if each}
