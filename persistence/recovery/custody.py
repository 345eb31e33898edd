"""Custody: no store is trusted until its content has been compared with history.

A server that starts, restarts or takes over may have everything, less than it had, or nothing. Whoever talks to it
first finds out here, and mends it: a new install is opened, an empty store is rebuilt, one that lost its last writes is
reconciled. Until then everyone is refused. A server that took over begins a new epoch in any case.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from enum import Enum
from functools import partial

import structlog
from psycopg import errors

from tideq.persistence.belonging import EVERYTHING, Belonging
from tideq.persistence.checkpoints import Checkpoint, Checkpoints
from tideq.persistence.database import MENDING, READING, Connection, Database, limit
from tideq.persistence.recovery.ground import Ground
from tideq.persistence.recovery.rebuild import Plan, Rebuild
from tideq.persistence.recovery.reconcile import Difference, Reconciliation
from tideq.persistence.replication.draining import drain, is_behind
from tideq.queue_core.duties import Duty
from tideq.queue_core.engine.feed import FIRST_ID, entry_order
from tideq.queue_core.engine.identity import StoreIdentity
from tideq.queue_core.engine.restoring import Restoration, StoreFacts
from tideq.queue_core.engine.scripts import Scripts
from tideq.queue_core.errors import HistoryUnavailable
from tideq.queue_core.settings import QueueSettings

LOCK = 7_305_004
FIRST_EPOCH = 1
COMPARE_SECONDS = 10.0
"""To be alone with a store and to compare it. Whoever waits longer says that it is closed, and tries again."""
STEP_SECONDS = 120.0
"""Between two signs of progress while a store is mended: a database that hangs is left, and the next try goes on."""

log = structlog.get_logger(__name__)


class Verdict(Enum):
    SOUND = "the store has everything history has"
    NEW = "neither has anything: a new install"
    ADOPT = "history is younger than the store, and learns from it"
    REBUILD = "the store is empty, or was left half filled"
    RECONCILE = "the store lost writes that history has"
    TAKEN_OVER = "another server has taken over, and has everything history has"


def judge(facts: StoreFacts, checkpoint: Checkpoint | None) -> Verdict:
    if checkpoint is None:
        return Verdict.ADOPT if facts.is_usable else Verdict.NEW
    if not facts.is_usable:
        return Verdict.REBUILD
    epoch = int(facts.epoch)
    if epoch > checkpoint.epoch:
        return Verdict.ADOPT
    if (epoch, *entry_order(facts.last_entry_id)) < checkpoint.order:
        return Verdict.RECONCILE
    return Verdict.TAKEN_OVER if facts.has_taken_over else Verdict.SOUND


class Custodian:
    """Keeps one process's scripts on the right epoch. `restoration` must come with a client that no identity guards."""

    def __init__(
        self,
        database: Database,
        restoration: Restoration,
        settings: QueueSettings,
        scripts: Scripts,
        identity: StoreIdentity,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
        belonging: Belonging = EVERYTHING,
    ) -> None:
        self.identity = identity
        self._belonging = belonging
        self._database = database
        self._restoration = restoration
        self._settings = settings
        self._scripts = scripts
        self._on_progress = on_progress
        self._limit: asyncio.Timeout | None = None
        self._checkpoints = Checkpoints(database, settings.partition)
        scripts.on_replaced = identity.doubt.set

    @property
    def is_in_doubt(self) -> bool:
        """Whether nobody may use the store until it has been compared with history."""
        return self.identity.doubt.is_set()

    async def settle(self) -> Verdict:
        """Compare, mend where needed, and let this process in; raises while it cannot tell."""
        await self._restoration.connect_anew()
        try:
            async with self._in_time(), self._alone() as connection:
                return await self._settle_with(connection)
        except HistoryUnavailable:
            if not await self._is_unchanged():
                raise
            return Verdict.SOUND

    async def rebuild(self) -> str:
        """Empty the store and fill it from history, which first gets what only the store has; returns the new epoch."""
        async with self._alone() as connection:
            facts, checkpoint = await self._compared(connection)
            if checkpoint is None:
                raise HistoryUnavailable("history has nothing to rebuild from")
            if judge(facts, checkpoint) is Verdict.ADOPT:
                checkpoint = Checkpoint(int(facts.epoch), FIRST_ID, 0, checkpoint.event_count)
                await self._checkpoints.enter_epoch(connection, checkpoint)
            return await self._rebuild(connection).run(facts, checkpoint)

    async def plan(self) -> Plan:
        """What a rebuild would put back."""
        async with self._database.session(limits=MENDING) as connection:
            return await self._rebuild(connection).plan()

    async def is_behind(self) -> bool:
        """Whether the store has something that history lacks."""
        async with self._database.session(limits=READING) as connection:
            checkpoint = await self._checkpoints.read_with(connection)
        return checkpoint is not None and await is_behind(self._restoration.feed, checkpoint)

    async def verdict(self) -> Verdict:
        """What `settle` would find, with nothing changed."""
        async with self._database.session(limits=READING) as connection:
            return judge(*await self._compared(connection))

    async def differences(self) -> AsyncGenerator[Difference]:
        async with self._database.session(limits=MENDING) as connection:
            async for each in self._reconciliation(connection).differences():
                yield each

    async def reconcile(self) -> str:
        """Mend what history knows better, whether or not the store looks sound; returns the new epoch."""
        async with self._alone() as connection:
            facts, checkpoint = await self._compared(connection)
            if checkpoint is None or not facts.is_usable:
                raise HistoryUnavailable("there is nothing to compare: start the service, or run `tideq rebuild`")
            return await self._mend(connection, Verdict.RECONCILE, facts, checkpoint)

    async def watch(self, duty: Duty) -> None:
        """For ever: whenever the store is in doubt, settle it. Until then it is closed."""
        while True:
            if not self.is_in_doubt:
                duty.succeeded()
            with duty.waiting():
                await self.identity.doubt.wait()
            verdict = await self.settle()
            log.warning("store settled", verdict=verdict.name, epoch=self._scripts.epoch)

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncGenerator[Connection]:
        """One at a time: who comes second finds the work done."""
        name = f"{self._database.schema}:{self._settings.partition}"
        async with self._database.session(limits=MENDING) as connection:
            await self._lock(connection, name)
            yield connection

    async def _lock(self, connection: Connection, name: str) -> None:
        await limit(connection, MENDING._replace(lock_ms=round(COMPARE_SECONDS * 1000)))
        try:
            await connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (LOCK, name))
        except errors.LockNotAvailable as error:
            raise HistoryUnavailable("another process is comparing the store with history, or mending it") from error
        await limit(connection, MENDING)

    @contextlib.asynccontextmanager
    async def _in_time(self) -> AsyncGenerator[None]:
        limit = asyncio.timeout(COMPARE_SECONDS)
        try:
            async with limit:
                self._limit = limit
                yield
        except TimeoutError as error:
            if limit.expired():
                raise HistoryUnavailable("comparing the store with history takes too long") from error
            raise
        finally:
            self._limit = None

    def _goes_on(self, done: int = 0, total: int = 0) -> None:
        """There is progress, which whoever waits for it may see."""
        if self._limit:
            self._limit.reschedule(asyncio.get_running_loop().time() + STEP_SECONDS)
        if total:
            self._on_progress(done, total)

    async def _settle_with(self, connection: Connection) -> Verdict:
        facts, checkpoint = await self._compared(connection)
        verdict = judge(facts, checkpoint)
        if verdict is Verdict.NEW:
            log.info("a new install")
        elif verdict is not Verdict.SOUND:
            log.warning("store is not what history expects", verdict=verdict.name, meaning=verdict.value)
        epoch = await self._mend(connection, verdict, facts, checkpoint or Checkpoint(0, FIRST_ID, 0, 0))
        await self._let_in(epoch, facts)
        return verdict

    async def _compared(self, connection: Connection) -> tuple[StoreFacts, Checkpoint | None]:
        """History first: replicators go on meanwhile, and a later checkpoint may lie beyond the store as it was."""
        checkpoint = await self._checkpoints.read_with(connection)
        return await self._restoration.facts(), checkpoint

    async def _mend(self, connection: Connection, verdict: Verdict, facts: StoreFacts, checkpoint: Checkpoint) -> str:
        self._goes_on()
        if verdict is Verdict.REBUILD:
            return await self._rebuild(connection).run(facts, checkpoint)
        if verdict is Verdict.RECONCILE:
            return await self._reconciliation(connection).run(facts, checkpoint, _log_difference)
        if verdict is Verdict.TAKEN_OVER:
            return await self._take_over(connection, facts, checkpoint)
        epoch = facts.epoch if facts.is_usable else str(FIRST_EPOCH)
        if verdict is Verdict.NEW and facts.epoch:
            # Sealed and left: what it holds is half of something. Without a seal it may hold keys, made beforehand.
            facts = await self._restoration.seal(facts)
            await self._restoration.wipe()
        if verdict is not Verdict.SOUND:
            await self._checkpoints.enter_epoch(connection, Checkpoint(int(epoch), FIRST_ID, 0, checkpoint.event_count))
        await self._restoration.enter(facts, epoch)
        return epoch

    async def _take_over(self, connection: Connection, facts: StoreFacts, checkpoint: Checkpoint) -> str:
        """The old server may still run, with processes that trust it: what they do there must not become history.

        So history is closed to them first, and then compared once more.
        """
        epoch = checkpoint.epoch + 1
        await self._checkpoints.close_epoch(connection, epoch)
        closed = await self._checkpoints.read_with(connection) or checkpoint
        if entry_order(facts.last_entry_id) < entry_order(closed.entry_id):
            return await self._mend(connection, Verdict.RECONCILE, facts, closed)
        await self._restoration.enter(facts, str(epoch), closed.now_ms, gives_workers_time=True)
        return str(epoch)

    def _rebuild(self, connection: Connection) -> Rebuild:
        drained = partial(drain, self._database, self._restoration.feed, self._settings.partition)
        return Rebuild(self._ground(connection), drained, self._goes_on)

    def _reconciliation(self, connection: Connection) -> Reconciliation:
        return Reconciliation(self._ground(connection), self._goes_on)

    def _ground(self, connection: Connection) -> Ground:
        return Ground(connection, self._restoration, self._checkpoints, self._settings, self._belonging)

    async def _is_unchanged(self) -> bool:
        """History is away, but this very run of the server was found sound before: the queue goes on."""
        facts = await self._restoration.facts()
        if not facts.is_usable or facts.identity != facts.known_identity:
            return False
        await self._let_in(facts.epoch, facts)
        return True

    async def _let_in(self, epoch: str, facts: StoreFacts) -> None:
        """To the server that was compared, and no other: connections to one that was trusted before are given up."""
        self._scripts.epoch = epoch
        self.identity.trust(facts.identity)
        await self._scripts.connect_anew()


def _log_difference(difference: Difference) -> None:
    log.warning(
        "task restored from history",
        task_id=difference.task_id,
        in_store=difference.in_store,
        in_history=difference.in_history,
    )
