"""Store guard: no store is used before its content has been compared with history.

A server that starts, restarts or takes over may have all of its data, less, or none. The first process that connects
compares it with history: a new install is opened, an empty store is rebuilt, and a store that lost its last writes is
reconciled. Until then every call is refused. A server that took over always begins a new epoch.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from enum import Enum
from functools import partial

import structlog
from psycopg import errors

from tideq.persistence.checkpoints import Checkpoint, Checkpoints
from tideq.persistence.database import READING, REPAIRING, Connection, Database, limit
from tideq.persistence.partition_owner import OWNS_ALL, PartitionOwner
from tideq.persistence.recovery.rebuild import Rebuild, RebuildPlan, RecoveryContext
from tideq.persistence.recovery.reconcile import Difference, Reconciliation
from tideq.persistence.replication.backfill import flush_outbox, is_behind
from tideq.queue_core.duties import Duty
from tideq.queue_core.errors import HistoryUnavailable
from tideq.queue_core.outbox.reader import FIRST_ID, entry_order
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.restore import StoreRestore, StoreStatus
from tideq.queue_core.store.server_identity import TrustedServers

LOCK = 7_305_004
FIRST_EPOCH = 1
COMPARE_SECONDS = 10.0
"""The limit for the lock and the comparison. After that the store stays closed and the process retries."""
STEP_SECONDS = 120.0
"""The limit between two steps of a repair. After that the database counts as hanging, and the process retries."""

log = structlog.get_logger(__name__)


class StoreCheck(Enum):
    IN_SYNC = "the store has everything history has"
    FRESH_INSTALL = "neither has anything: a new install"
    HISTORY_BEHIND = "history is younger than the store, and is filled from it"
    STORE_EMPTY = "the store is empty, or an interrupted rebuild left it half filled"
    STORE_BEHIND = "the store lost writes that history has"
    FAILED_OVER = "another server has taken over, and has everything history has"


def compare(status: StoreStatus, checkpoint: Checkpoint | None) -> StoreCheck:
    if checkpoint is None:
        return StoreCheck.HISTORY_BEHIND if status.is_usable else StoreCheck.FRESH_INSTALL
    if not status.is_usable:
        return StoreCheck.STORE_EMPTY
    epoch = int(status.epoch)
    if epoch > checkpoint.epoch:
        return StoreCheck.HISTORY_BEHIND
    if (epoch, *entry_order(status.last_entry_id)) < checkpoint.order:
        return StoreCheck.STORE_BEHIND
    return StoreCheck.FAILED_OVER if status.has_taken_over else StoreCheck.IN_SYNC


class StoreGuard:
    """Guards one partition for one process, and sets the epoch of its scripts.

    `restoration` needs an unguarded client, because it connects to servers that are not verified.
    """

    def __init__(
        self,
        database: Database,
        restoration: StoreRestore,
        settings: QueueSettings,
        scripts: Scripts,
        identity: TrustedServers,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
        owner: PartitionOwner = OWNS_ALL,
    ) -> None:
        self.identity = identity
        self._owner = owner
        self._database = database
        self._restoration = restoration
        self._settings = settings
        self._scripts = scripts
        self._on_progress = on_progress
        self._limit: asyncio.Timeout | None = None
        self._checkpoints = Checkpoints(database, settings.partition)
        scripts.on_replaced = identity.unverified.set

    @property
    def is_unverified(self) -> bool:
        """Whether the store is closed until it has been compared with history."""
        return self.identity.unverified.is_set()

    async def verify(self) -> StoreCheck:
        """Compares the store with history, repairs it where needed, and opens it for this process.

        Returns the result of the comparison. Raises StoreUnavailable, and HistoryUnavailable unless the server is the
        same run as at the last comparison.
        """
        await self._restoration.drop_idle_connections()
        try:
            async with self._time_limit(), self._exclusive() as connection:
                return await self._verify_with(connection)
        except HistoryUnavailable:
            if not await self._admit_unchanged():
                raise
            return StoreCheck.IN_SYNC

    async def rebuild(self) -> str:
        """Flushes the outbox to history, empties the store and restores it; returns the new epoch."""
        async with self._exclusive() as connection:
            status, checkpoint = await self._read_both(connection)
            if checkpoint is None:
                raise HistoryUnavailable("history is empty: there is nothing to rebuild from")
            if compare(status, checkpoint) is StoreCheck.HISTORY_BEHIND:
                checkpoint = Checkpoint(int(status.epoch), FIRST_ID, 0, checkpoint.event_count)
                await self._checkpoints.enter_epoch(connection, checkpoint)
            return await self._rebuild(connection).run(status, checkpoint)

    async def plan(self) -> RebuildPlan:
        """Returns what a rebuild would restore."""
        async with self._database.session(limits=REPAIRING) as connection:
            return await self._rebuild(connection).plan()

    async def is_behind(self) -> bool:
        """Returns whether history is behind the store."""
        async with self._database.session(limits=READING) as connection:
            checkpoint = await self._checkpoints.read_with(connection)
        return checkpoint is not None and await is_behind(self._restoration.outbox, checkpoint)

    async def check(self) -> StoreCheck:
        """Returns the result of `verify` without changing anything."""
        async with self._database.session(limits=READING) as connection:
            return compare(*await self._read_both(connection))

    async def differences(self) -> AsyncGenerator[Difference]:
        async with self._database.session(limits=REPAIRING) as connection:
            async for each in self._reconciliation(connection).differences():
                yield each

    async def reconcile(self) -> str:
        """Repairs all differences, even if the comparison finds none; returns the new epoch."""
        async with self._exclusive() as connection:
            status, checkpoint = await self._read_both(connection)
            if checkpoint is None or not status.is_usable:
                raise HistoryUnavailable("store or history is empty: start the service, or run `tideq rebuild`")
            return await self._repair(connection, StoreCheck.STORE_BEHIND, status, checkpoint)

    async def watch(self, duty: Duty) -> None:
        """Runs until cancelled: verifies the store whenever it is unverified."""
        while True:
            if not self.is_unverified:
                duty.succeeded()
            with duty.waiting():
                await self.identity.unverified.wait()
            check = await self.verify()
            log.warning("store verified", check=check.name, epoch=self._scripts.epoch)

    @contextlib.asynccontextmanager
    async def _exclusive(self) -> AsyncGenerator[Connection]:
        """Yields a connection with the partition's lock: a second process waits, and finds the work done."""
        name = f"{self._database.schema}:{self._settings.partition}"
        async with self._database.session(limits=REPAIRING) as connection:
            await self._lock(connection, name)
            yield connection

    async def _lock(self, connection: Connection, name: str) -> None:
        await limit(connection, REPAIRING._replace(lock_ms=round(COMPARE_SECONDS * 1000)))
        try:
            await connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (LOCK, name))
        except errors.LockNotAvailable as error:
            raise HistoryUnavailable("another process is comparing the store with history or repairing it") from error
        await limit(connection, REPAIRING)

    @contextlib.asynccontextmanager
    async def _time_limit(self) -> AsyncGenerator[None]:
        limit = asyncio.timeout(COMPARE_SECONDS)
        try:
            async with limit:
                self._limit = limit
                yield
        except TimeoutError as error:
            if limit.expired():
                raise HistoryUnavailable("comparing the store with history took too long") from error
            raise
        finally:
            self._limit = None

    def _report_progress(self, done: int = 0, total: int = 0) -> None:
        """Extends the time limit, and reports the progress to the caller."""
        if self._limit:
            self._limit.reschedule(asyncio.get_running_loop().time() + STEP_SECONDS)
        if total:
            self._on_progress(done, total)

    async def _verify_with(self, connection: Connection) -> StoreCheck:
        status, checkpoint = await self._read_both(connection)
        check = compare(status, checkpoint)
        if check is StoreCheck.FRESH_INSTALL:
            log.info("new install found")
        elif check is not StoreCheck.IN_SYNC:
            log.warning("store differs from history", check=check.name, meaning=check.value)
        epoch = await self._repair(connection, check, status, checkpoint or Checkpoint(0, FIRST_ID, 0, 0))
        await self._trust(epoch, status)
        return check

    async def _read_both(self, connection: Connection) -> tuple[StoreStatus, Checkpoint | None]:
        """Reads history first: replicators continue, and a later checkpoint could be ahead of the store's status."""
        checkpoint = await self._checkpoints.read_with(connection)
        return await self._restoration.status(), checkpoint

    async def _repair(
        self, connection: Connection, check: StoreCheck, status: StoreStatus, checkpoint: Checkpoint
    ) -> str:
        self._report_progress()
        if check is StoreCheck.STORE_EMPTY:
            return await self._rebuild(connection).run(status, checkpoint)
        if check is StoreCheck.STORE_BEHIND:
            return await self._reconciliation(connection).run(status, checkpoint, _log_difference)
        if check is StoreCheck.FAILED_OVER:
            return await self._fail_over(connection, status, checkpoint)
        epoch = status.epoch if status.is_usable else str(FIRST_EPOCH)
        if check is StoreCheck.FRESH_INSTALL and status.epoch:
            # An interrupted rebuild left the store half filled. A store without an epoch is not wiped: it may hold
            # access keys made before the first start.
            status = await self._restoration.close(status)
            await self._restoration.wipe()
        if check is not StoreCheck.IN_SYNC:
            await self._checkpoints.enter_epoch(connection, Checkpoint(int(epoch), FIRST_ID, 0, checkpoint.event_count))
        await self._restoration.enter(status, epoch)
        return epoch

    async def _fail_over(self, connection: Connection, status: StoreStatus, checkpoint: Checkpoint) -> str:
        """Opens a new epoch on the new primary, after closing the old epoch in history.

        The old primary may still run with processes that trust it, and their writes must not become history. So
        history is closed to the old epoch first, and compared again.
        """
        epoch = checkpoint.epoch + 1
        await self._checkpoints.close_epoch(connection, epoch)
        closed = await self._checkpoints.read_with(connection) or checkpoint
        if entry_order(status.last_entry_id) < entry_order(closed.entry_id):
            return await self._repair(connection, StoreCheck.STORE_BEHIND, status, closed)
        await self._restoration.enter(status, str(epoch), closed.now_ms, gives_workers_time=True)
        return str(epoch)

    def _rebuild(self, connection: Connection) -> Rebuild:
        flush = partial(flush_outbox, self._database, self._restoration.outbox, self._settings.partition)
        return Rebuild(self._context(connection), flush, self._report_progress)

    def _reconciliation(self, connection: Connection) -> Reconciliation:
        return Reconciliation(self._context(connection), self._report_progress)

    def _context(self, connection: Connection) -> RecoveryContext:
        return RecoveryContext(connection, self._restoration, self._checkpoints, self._settings, self._owner)

    async def _admit_unchanged(self) -> bool:
        """Opens the store without history if the server is the same run that was verified before; returns whether."""
        status = await self._restoration.status()
        if not status.is_usable or status.identity != status.trusted_identity:
            return False
        await self._trust(status.epoch, status)
        return True

    async def _trust(self, epoch: str, status: StoreStatus) -> None:
        """Trusts only the compared server: idle connections to servers trusted before are dropped."""
        self._scripts.epoch = epoch
        self.identity.trust(status.identity)
        await self._scripts.drop_idle_connections()


def _log_difference(difference: Difference) -> None:
    log.warning(
        "task restored from history",
        task_id=difference.task_id,
        in_store=difference.in_store,
        in_history=difference.in_history,
    )
