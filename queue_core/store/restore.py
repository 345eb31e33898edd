"""Restores a closed store: wipes it, fills it from history, opens it under a new epoch.

The store is closed by an epoch that no process has, and opened by the last step. A process killed in between leaves it
closed, and the next restore starts from the beginning.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import structlog

from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.outbox.reader import last_entry_id
from tideq.queue_core.partition import Removed
from tideq.queue_core.scripts.constants import scripts_for
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.record import Record, readable_record
from tideq.queue_core.scripts.replies import accepted, text
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.states import TaskState
from tideq.queue_core.store.clock import settled_time
from tideq.queue_core.store.connect import target_of
from tideq.queue_core.store.driver_errors import store_errors
from tideq.queue_core.store.formats import FIRST_FORMAT
from tideq.queue_core.store.server_identity import ServerInfo, server_info_of
from tideq.queue_core.store.side_data import put_side_data
from tideq.queue_core.store.store_client import drop_idle_connections

SPARE_MS = 31 * 86_400_000
"""Added to a key's expiry by the queue's clock to get its expiry by the server's clock, as in `store_key.lua`."""

log = structlog.get_logger(__name__)

CLOSED = "closed:"
LANES_PER_EPOCH = 1_000_000
WIPE_COUNT = 1_000


class StoreStatus(NamedTuple):
    """Epoch and server of a store. A closed store has an epoch that begins with `CLOSED`: its content is partial."""

    epoch: str
    identity: str
    trusted_identity: str
    """The server run that last passed the store check."""
    last_entry_id: str
    was_replica: bool = False

    @property
    def is_usable(self) -> bool:
        return bool(self.epoch) and not self.epoch.startswith(CLOSED)

    @property
    def has_taken_over(self) -> bool:
        """Whether this server replaced another one and has not passed the store check yet."""
        return self.was_replica and self.identity != self.trusted_identity


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


class StoreRestore:
    def __init__(self, client: Any, settings: QueueSettings, *, sends_flags: bool = True) -> None:
        self.partition = settings.partition
        self._client = client
        self._settings = settings
        self._keys = Keys(settings.queue_name, settings.partition)
        self._scripts = scripts_for(client, settings, sends_flags=sends_flags)
        self.outbox = OutboxConsumer(client, self._keys)

    async def drop_idle_connections(self) -> None:
        await drop_idle_connections(self._client)

    async def status(self) -> StoreStatus:
        """Returns the status. The identity is read first: if another server answers the rest, `enter` will fail."""
        with store_errors():
            present = await self._server_info()
            epoch, trusted = await self._client.hmget(self._keys.key("meta"), "epoch", "identity")
            return StoreStatus(
                epoch=text(epoch or b""),
                identity=present.identity,
                was_replica=present.was_replica,
                trusted_identity=text(trusted or b""),
                last_entry_id=await last_entry_id(self._client, self._keys.key("outbox")),
            )

    async def enter(
        self, present: StoreStatus, epoch: str, least_now_ms: int = 0, *, gives_workers_time: bool = False
    ) -> None:
        """Open the store under this epoch; raises StoreUnavailable if it is not the store of this status any more.

        With `gives_workers_time`, heartbeats are due a full timeout from now: the last ones may have been lost.
        """
        grace_ms = self._settings.leases.heartbeat_timeout_ms if gives_workers_time else 0
        await self._enter(present, epoch, least_now_ms, grace_ms)
        self._scripts.epoch = epoch

    async def close(self, present: StoreStatus, least_now_ms: int = 0) -> StoreStatus:
        """Close the store to all other processes; returns its new status."""
        closed = present._replace(epoch=CLOSED + secrets.token_hex(8))
        await self._enter(present, closed.epoch, least_now_ms, 0)
        self._scripts.epoch = closed.epoch
        return closed

    async def _enter(self, present: StoreStatus, epoch: str, least_now_ms: int, heartbeat_grace_ms: int) -> None:
        """Raises StoreUnavailable if the server has restarted since: its data may differ from what was compared."""
        with store_errors():
            identity = (await self._server_info()).identity
        if identity != present.identity:
            raise StoreUnavailable("the store restarted while it was compared with history")
        await self.now_ms()
        reply = await self._scripts.call(
            "enter_epoch",
            present_epoch=present.epoch,
            next_epoch=epoch,
            first_format=FIRST_FORMAT,
            identity=identity,
            least_now_ms=least_now_ms,
            heartbeat_grace_ms=heartbeat_grace_ms,
            least_lanes_version=(int(epoch) if epoch.isdigit() else 0) * LANES_PER_EPOCH,
        )
        accepted(reply)

    async def _server_info(self) -> ServerInfo:
        return await server_info_of(self._client, **await target_of(self._client, self._keys.key("meta")))

    async def wipe(self) -> None:
        """Delete all keys but `meta`, which holds the epoch; the outbox first, which history has by now."""
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
            log.error("task not restored: record unreadable, kept in history only", task_id=text(task_id))

    async def remove(self, task_ids: Sequence[str]) -> None:
        """Remove purged tasks: store them as ended, and free their idempotency keys.

        A task whose record cannot be read stays: it may be of a later version, and of a later life.
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
        """Store the errors of earlier attempts, by task and attempt."""
        pipeline = self._client.pipeline(transaction=False)
        for task_id, by_attempt in errors.items():
            notes = {f"e{attempt}": error for attempt, error in by_attempt.items()}
            pipeline.hset(self._keys.prefix("attempt_notes") + task_id, mapping=notes)
        with store_errors():
            await pipeline.execute()

    async def put_dead_letters(self, died_ms_by_id: Mapping[str, int]) -> None:
        if died_ms_by_id:
            with store_errors():
                await self._client.zadd(self._keys.key("dead"), died_ms_by_id)

    async def put_keys(self, keys: Sequence[KeptKey]) -> None:
        """Store idempotency keys in the form of `store_key.lua`."""
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            value, server_expiry_ms = f"{key.value} {key.expires_at_ms}", key.expires_at_ms + SPARE_MS
            pipeline.set(self._keys.prefix("idempotency") + key.name, value, pxat=server_expiry_ms)
            pipeline.zadd(self._keys.key("expiring"), {f"~{key.name}": key.expires_at_ms})
        with store_errors():
            await pipeline.execute()

    async def put_side_data(self, side_data: dict[str, bytes], heartbeat_due_ms: int) -> None:
        with store_errors():
            await put_side_data(self._client, self._keys, side_data, heartbeat_due_ms)

    async def now_ms(self) -> int:
        """Returns the queue's time, also of a closed store; waits while a clock jump is unconfirmed."""
        return await settled_time(self._scripts)

    async def records(self, task_ids: Sequence[str]) -> dict[str, Record | None]:
        """Returns the records of those tasks that the store has; None for an unreadable record."""
        with store_errors():
            packed = await self._client.hmget(self._keys.key("records"), task_ids)
        return {task_id: readable_record(each) for task_id, each in zip(task_ids, packed, strict=True) if each}
