"""`tideq migrate`, `replicate`, `rebuild`, `reconcile` and `prune`: history, and recovery of the store from it."""

import contextlib
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Literal, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tideq.api.settings import ServiceSettings
from tideq.cli import background_duties
from tideq.cli.exit_codes import USAGE, stop, stop_with
from tideq.cli.health_page import health_page
from tideq.cli.output import print_line
from tideq.cli.service_runner import environ_with, log_to_stderr, settings_from, until_signal
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import open_store
from tideq.persistence.recovery.store_guard import StoreCheck, StoreGuard
from tideq.persistence.recovery.store_guards import StoreGuards, store_guards_of
from tideq.persistence.schema.clocks import store_instants
from tideq.persistence.schema.migrations import MigrationError, migrate_when_reachable, missing_when_migrated
from tideq.persistence.schema.partitions import Partitions, PartitionsBusy
from tideq.queue_core.background import run, run_all
from tideq.queue_core.duties import Duties, DutiesEnded
from tideq.queue_core.engine import assemble_engine
from tideq.queue_core.errors import QueueError
from tideq.queue_core.scripts.replies import accepted
from tideq.queue_core.settings import SettingsError
from tideq.queue_core.store.connect import StoreUrlError, connect
from tideq.queue_core.store.duty_board import DutyBoard
from tideq.queue_core.store.formats import NEWEST_FORMAT
from tideq.queue_core.store.server_identity import TrustedServers
from tideq.workers.runtime.health import HealthPortTaken

T = TypeVar("T")
OnProgress = Callable[[int, int], None]


def migrate(action: Literal["run", "status", "finish"] = "run", *, wait: float = 0, allow_newer: bool = False) -> None:
    """Bring the database's schema up to date; safe to run from several places at once.

    Parameters
    ----------
    action
        `status` lists the missing migrations, and exits with 1 if there are any. `finish` ends an upgrade, once no
        process of an earlier version runs or will run again: from then on the store is written in this version's
        format.
    wait
        Seconds to wait for a database that is still starting and, with `status`, for another process to migrate it;
        `inf` waits without limit.
    allow_newer
        Accept a database that a later version has migrated, to go back to this version: migrations only add, so they
        need not be undone.
    """
    if action == "finish":
        run_command(_finish(_store_settings(settings_from(environ_with()))))
        print_line(f"the store is now written in format {NEWEST_FORMAT}")
        return
    log_to_stderr()
    settings = history_settings(needs_store=False)
    missing = run_command(_migrate(settings, action, wait, allow_newer=allow_newer))
    for migration in missing:
        print_line(f"{'missing' if action == 'status' else 'applied'}: {migration.number:04} {migration.name}")
    if not missing:
        print_line("the schema is up to date")
    elif action == "status":
        sys.exit(1)


def replicate(*, health_host: str = "127.0.0.1", health_port: int | None = None) -> None:
    """Copy the events of the queue to history, until SIGTERM or Ctrl-C. Any number of replicators may run.

    Parameters
    ----------
    health_host
        The address on which the health page and /metrics listen.
    health_port
        The port of the health page; without this option there is no page.
    """
    log_to_stderr()
    settings = history_settings()
    print_line("replicating")
    duties = Duties()
    page = health_page(health_host, health_port, settings.queue.queue_name, duties)
    run_command(until_signal(_replicate(settings, page, duties)))


def rebuild(*, dry_run: bool = False, force: bool = False) -> None:
    """Fill an empty store from history. The service does this by itself when it starts.

    Parameters
    ----------
    dry_run
        Only list what would be restored.
    force
        Rebuild a complete store too: it is emptied first, after events that history lacks have been written.
    """
    settings = history_settings()
    run_command(_rebuild(settings, dry_run=dry_run, force=force))


def reconcile(*, dry_run: bool = False) -> None:
    """List and repair the tasks that a store has lost or has behind history. The service does this by itself too.

    Parameters
    ----------
    dry_run
        Only list the differences.
    """
    settings = history_settings()
    run_command(_reconcile(settings, dry_run=dry_run))


def prune() -> None:
    """Create the coming partitions, and drop those older than TIDEQ_HISTORY_RETENTION_DAYS."""
    run_command(_prune(history_settings(needs_store=False)))


async def _finish(settings: ServiceSettings) -> None:
    """Works without history too."""
    async with open_store(settings.redis_url, settings.queue, settings.history) as store:
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
    """A long-running query may block this; the monitor creates them later, and rows go to the default partition."""
    try:
        await Partitions(database, settings.history).make_ahead()
    except PartitionsBusy as error:
        print_line(f"{error}; the monitor creates them later")


async def _replicate(
    settings: ServiceSettings, page: contextlib.AbstractAsyncContextManager[None], duties: Duties
) -> None:
    async with page, open_store(settings.redis_url, settings.queue, settings.history, duties=duties) as store:
        await run_all(
            background_duties.replicate(store, settings, duties),
            DutyBoard(store.client, store.engine.keys).post_for_ever(duties),
            duties.wait_for_unexpected_end(),
        )


async def _rebuild(settings: ServiceSettings, *, dry_run: bool, force: bool) -> None:
    epoch = ""
    with _bar("restoring tasks") as on_progress:
        async with _store_guard(settings, on_progress) as guard:
            state, plan, is_behind = await guard.check(), await guard.plan(), await guard.is_behind()
            is_needed = force or state in (StoreCheck.STORE_EMPTY, StoreCheck.STORE_BEHIND)
            if not dry_run and is_needed:
                epoch = await guard.rebuild()
    counts = ", ".join(f"{count} {state}" for state, count in sorted(plan.live_by_state.items())) or "none"
    print_line(f"store: {state.value}")
    print_line(f"history: {plan.live_count} live tasks ({counts})")
    print_line(f"         {plan.dead_letter_count} dead letters, {plan.key_count} idempotency keys")
    if plan.parked_count:
        print_line(f"         {plan.parked_count} tasks with parked events, restored from those events")
    if is_behind:
        print_line("store: has transitions that history lacks; a rebuild writes them to history first")
    if dry_run:
        print_line("would rebuild" if is_needed else "would do nothing; --force rebuilds anyway")
    else:
        print_line(f"rebuilt under epoch {epoch}" if is_needed else "nothing to do; --force rebuilds anyway")


async def _reconcile(settings: ServiceSettings, *, dry_run: bool) -> None:
    async with _store_guard(settings) as guard:
        count = 0
        async for each in guard.differences():
            count += 1
            in_store = f"{each.in_store.state} v{each.in_store.version}" if each.in_store else "nothing"
            print_line(
                f"{each.task_id}  store: {in_store}  history: {each.in_history.state} v{each.in_history.version}"
            )
        if count and not dry_run:
            print_line(f"reconciled under epoch {await guard.reconcile()}")
        print_line(f"{count} differences")


async def _prune(settings: ServiceSettings) -> None:
    async with _database(settings) as database:
        partitions = Partitions(database, settings.history)
        made = await partitions.make_ahead()
        clocks = await partitions.clocks(time.time_ns() // 1_000_000, partial(_store_instants, settings))
        dropped = await partitions.prune(clocks, settings.queue.retention.dead_letter_ttl_ms)
    print_line(f"{len(made)} partitions created, {len(dropped)} dropped")


async def _store_instants(settings: ServiceSettings) -> list[int]:
    """Empty where no store is set: old partitions can be dropped without one."""
    if not settings.redis_url:
        return []
    async with contextlib.aclosing(connect(settings.redis_url)) as client:
        return await store_instants(client, assemble_engine(client, settings.queue))


def _database(settings: ServiceSettings) -> Database:
    return Database(settings.history.database_url, settings.queue.queue_name)


@contextlib.asynccontextmanager
async def _store_guard(
    settings: ServiceSettings, on_progress: OnProgress = lambda done, total: None
) -> AsyncGenerator[StoreGuard | StoreGuards]:
    client = connect(settings.redis_url)
    async with contextlib.aclosing(client), _database(settings) as database:
        engine = assemble_engine(client, settings.queue)
        yield store_guards_of(database, client, settings.queue, engine, TrustedServers(), on_progress)


@contextlib.contextmanager
def _bar(title: str) -> Generator[OnProgress]:
    """Shown on standard error, and only on a terminal."""
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
        stop("DATABASE_URL is not set; set it, for example to postgresql://tideq@127.0.0.1/tideq", USAGE)
    return _store_settings(settings) if needs_store else settings


def _store_settings(settings: ServiceSettings) -> ServiceSettings:
    if not settings.redis_url:
        stop("REDIS_URL is not set; set it to the URL of the service's store", USAGE)
    return settings


def run_command(work: Coroutine[Any, Any, T]) -> T:
    try:
        return run(work)
    except (DutiesEnded, QueueError, SettingsError, MigrationError, StoreUrlError, HealthPortTaken) as error:
        stop_with(error)
