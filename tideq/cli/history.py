"""`tideq migrate`, `replicate`, `rebuild`, `reconcile` and `prune`: history and the way back from it."""

import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Literal, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tideq.api.settings import ServiceSettings
from tideq.cli import housekeeping
from tideq.cli.endings import USAGE, stop, stop_with
from tideq.cli.running import environ_with, log_to_stderr, say, settings_from, until_signal
from tideq.cli.vitals import health_page
from tideq.persistence.database import Database
from tideq.persistence.recovery.custodians import Custodians, custody_of
from tideq.persistence.recovery.custody import Custodian, Verdict
from tideq.persistence.recovery.kept_store import open_kept_store
from tideq.persistence.schema.clocks import store_instants
from tideq.persistence.schema.migrations import MigrationError, migrate_when_reachable, missing_when_migrated
from tideq.persistence.schema.partitions import Partitions, PartitionsBusy
from tideq.queue_core.background import run, together
from tideq.queue_core.duties import Duties, DutiesEnded
from tideq.queue_core.engine.duty_board import DutyBoard
from tideq.queue_core.engine.engine import assemble_engine
from tideq.queue_core.engine.identity import StoreIdentity
from tideq.queue_core.engine.replies import accepted
from tideq.queue_core.engine.store import StoreUrlError, connect
from tideq.queue_core.engine.store_format import NEWEST_FORMAT
from tideq.queue_core.errors import QueueError
from tideq.queue_core.settings import SettingsError
from tideq.telemetry.metrics import push_counters
from tideq.workers.runtime.health import HealthPortTaken

T = TypeVar("T")
OnProgress = Callable[[int, int], None]


def migrate(action: Literal["run", "status", "finish"] = "run", *, wait: float = 0, allow_newer: bool = False) -> None:
    """Bring the database's schema up to date; safe to run from many places at once.

    Parameters
    ----------
    action
        `status` only says what is missing, and fails if anything is. `finish` is for after an upgrade, when no process
        of an earlier version runs or shall run again: from then on the store is written in this version's format.
    wait
        Seconds to wait for a database that is still starting and, with `status`, for somebody else to migrate it;
        `inf` for as long as it takes.
    allow_newer
        A database that a later version has migrated will do: migrations only ever add, so this version can be gone
        back to without undoing them.
    """
    if action == "finish":
        run_command(_finish(_store_settings(settings_from(environ_with()))))
        say(f"the store is written in format {NEWEST_FORMAT} from now on")
        return
    log_to_stderr()
    settings = history_settings(needs_store=False)
    missing = run_command(_migrate(settings, action, wait, allow_newer=allow_newer))
    for migration in missing:
        say(f"{'missing' if action == 'status' else 'applied'}: {migration.number:04} {migration.name}")
    if not missing:
        say("the schema is up to date")
    elif action == "status":
        sys.exit(1)


def replicate(*, health_host: str = "127.0.0.1", health_port: int | None = None) -> None:
    """Copy what happens in the queue to history, until SIGTERM or Ctrl-C. Any number may run.

    Parameters
    ----------
    health_host
        Where the health page and /metrics listen.
    health_port
        The page's port; left out, there is no page.
    """
    log_to_stderr()
    settings = history_settings()
    say("replicating")
    duties = Duties()
    page = health_page(health_host, health_port, settings.queue.queue_name, duties)
    run_command(until_signal(_replicate(settings, page, duties)))


def rebuild(*, dry_run: bool = False, force: bool = False) -> None:
    """Fill an empty store from history. The service does this by itself when it starts.

    Parameters
    ----------
    dry_run
        Only say what would be put back.
    force
        Also where the store has everything: empty it first. What history lacks of it is written before.
    """
    settings = history_settings()
    run_command(_rebuild(settings, dry_run=dry_run, force=force))


def reconcile(*, dry_run: bool = False) -> None:
    """List and mend what a store that lost writes does not know. The service does this by itself when it notices.

    Parameters
    ----------
    dry_run
        Only list.
    """
    settings = history_settings()
    run_command(_reconcile(settings, dry_run=dry_run))


def prune() -> None:
    """Make partitions ahead, and drop those older than TIDEQ_HISTORY_RETENTION_DAYS."""
    run_command(_prune(history_settings(needs_store=False)))


async def _finish(settings: ServiceSettings) -> None:
    """Also without history."""
    async with open_kept_store(settings.redis_url, settings.queue, settings.history) as store:
        for part in store.engine.parts:
            accepted(await part.scripts.call("raise_format", number=NEWEST_FORMAT))


async def _migrate(settings: ServiceSettings, action: str, wait: float, *, allow_newer: bool) -> Any:
    async with _database(settings) as database:
        if action == "status":
            return await missing_when_migrated(database, wait, allow_newer=allow_newer)
        applied = await migrate_when_reachable(database, wait, allow_newer=allow_newer)
        await make_partitions(database, settings)
        return applied


async def make_partitions(database: Database, settings: ServiceSettings) -> None:
    """What a long reader keeps from being made now is made by the monitor later, and has a place until then."""
    try:
        await Partitions(database, settings.history).make_ahead()
    except PartitionsBusy as error:
        say(f"{error}; the monitor makes them later")


async def _replicate(
    settings: ServiceSettings, page: contextlib.AbstractAsyncContextManager[None], duties: Duties
) -> None:
    async with page, open_kept_store(settings.redis_url, settings.queue, settings.history, duties=duties) as store:
        await together(
            housekeeping.replicate(store, settings, duties),
            DutyBoard(store.client, store.engine.keys).post_for_ever(duties),
            push_counters(os.environ, "tideq-replicator", settings.queue.queue_name, duties),
            duties.one_ended(),
        )


async def _rebuild(settings: ServiceSettings, *, dry_run: bool, force: bool) -> None:
    epoch = ""
    with _bar("restoring tasks") as on_progress:
        async with _custodian(settings, on_progress) as custodian:
            verdict, plan, is_behind = await custodian.verdict(), await custodian.plan(), await custodian.is_behind()
            is_needed = force or verdict in (Verdict.REBUILD, Verdict.RECONCILE)
            if not dry_run and is_needed:
                epoch = await custodian.rebuild()
    counts = ", ".join(f"{count} {state}" for state, count in sorted(plan.live_by_state.items())) or "none"
    say(f"store: {verdict.value}")
    say(f"history: {plan.live_count} live tasks ({counts})")
    say(f"         {plan.dead_letter_count} dead letters, {plan.key_count} idempotency keys")
    if plan.parked_count:
        say(f"         {plan.parked_count} tasks with parked events, which are put back as those tell")
    if is_behind:
        say("store: it has transitions that history lacks; a rebuild writes them first, so nothing is lost")
    if dry_run:
        say("would rebuild" if is_needed else "would do nothing; --force rebuilds all the same")
    else:
        say(f"rebuilt under epoch {epoch}" if is_needed else "nothing to do; --force rebuilds all the same")


async def _reconcile(settings: ServiceSettings, *, dry_run: bool) -> None:
    async with _custodian(settings) as custodian:
        count = 0
        async for each in custodian.differences():
            count += 1
            in_store = f"{each.in_store.state} v{each.in_store.version}" if each.in_store else "nothing"
            say(f"{each.task_id}  store: {in_store}  history: {each.in_history.state} v{each.in_history.version}")
        if count and not dry_run:
            say(f"mended under epoch {await custodian.reconcile()}")
        say(f"{count} differences")


async def _prune(settings: ServiceSettings) -> None:
    async with _database(settings) as database:
        partitions = Partitions(database, settings.history)
        made = await partitions.make_ahead()
        clocks = await partitions.clocks(time.time_ns() // 1_000_000, partial(_store_instants, settings))
        dropped = await partitions.prune(clocks, settings.queue.retention.dead_letter_ttl_ms)
    say(f"{len(made)} partitions made, {len(dropped)} dropped")


async def _store_instants(settings: ServiceSettings) -> list[int]:
    """None where no store is set: old partitions can be dropped without one."""
    if not settings.redis_url:
        return []
    async with contextlib.aclosing(connect(settings.redis_url)) as client:
        return await store_instants(client, assemble_engine(client, settings.queue))


def _database(settings: ServiceSettings) -> Database:
    return Database(settings.history.database_url, settings.queue.queue_name)


@contextlib.asynccontextmanager
async def _custodian(
    settings: ServiceSettings, on_progress: OnProgress = lambda done, total: None
) -> AsyncGenerator[Custodian | Custodians]:
    client = connect(settings.redis_url)
    async with contextlib.aclosing(client), _database(settings) as database:
        engine = assemble_engine(client, settings.queue)
        yield custody_of(database, client, settings.queue, engine, StoreIdentity(), on_progress)


@contextlib.contextmanager
def _bar(title: str) -> Generator[OnProgress]:
    """On a terminal only, and not on standard output."""
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task(title, total=None)

        def show(done: int, total: int) -> None:
            progress.update(bar, completed=done, total=total)

        yield show


def history_settings(*, needs_store: bool = True) -> ServiceSettings:
    settings = settings_from(environ_with())
    if not settings.history.database_url:
        stop("set DATABASE_URL, for example DATABASE_URL=postgresql://tideq@127.0.0.1/tideq", USAGE)
    return _store_settings(settings) if needs_store else settings


def _store_settings(settings: ServiceSettings) -> ServiceSettings:
    if not settings.redis_url:
        stop("set REDIS_URL to the service's store", USAGE)
    return settings


def run_command(work: Coroutine[Any, Any, T]) -> T:
    try:
        return run(work)
    except (DutiesEnded, QueueError, SettingsError, MigrationError, StoreUrlError, HealthPortTaken) as error:
        stop_with(error)
