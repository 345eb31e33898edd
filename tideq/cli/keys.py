"""`tideq keys`: creates, lists and revokes access keys."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import cyclopts
import msgspec

from tideq.cli.exit_codes import NOT_FOUND, USAGE, stop, stop_with
from tideq.cli.output import Format, print_line
from tideq.cli.output import show as show_items
from tideq.cli.service_runner import environ_with, settings_from
from tideq.queue_core.errors import InvalidRequest, Unavailable
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.store.access_keys import AccessKey, AccessKeys
from tideq.queue_core.store.connect import StoreUrlError, connect

T = TypeVar("T")
ClientIds = Annotated[list[str] | None, cyclopts.Parameter(name="--client-id", negative=())]
RETRY_SECONDS = 0.5


class KeyRow(msgspec.Struct, frozen=True):
    """A key without its digest."""

    key_id: str
    name: str
    role: str
    is_revoked: bool
    client_ids: tuple[str, ...]


def create(name: str, *, role: Literal["producer", "worker", "viewer", "admin"], client_ids: ClientIds = None) -> None:
    """Create a key and print it. Only its digest is stored: the key cannot be shown again.

    Parameters
    ----------
    name
        The owner of the key; limits and the audit log use this name.
    role
        producer submits, worker claims and completes, viewer reads, admin does everything.
    client_ids
        A client it may submit as besides its own name, or `*` for any. May be given more than once.
    """
    print_line(_with_keys(lambda keys: keys.create(name, role, time.time_ns() // 1_000_000, client_ids or ())))


def allow(key_id: str, *, client_ids: ClientIds = None) -> None:
    """Set the clients a key may submit as, besides its own name. Without --client-id all are removed.

    Parameters
    ----------
    key_id
        The part between the underscores: tq_<id>_….
    client_ids
        The client, or `*` for any. May be given more than once.
    """
    print_line(_line(_with_keys(lambda keys: keys.allow(key_id, client_ids or ()))))


def adopt(folder: Path, *, wait: float = 0, client_ids: ClientIds = None) -> None:
    """Register keys that were created elsewhere, for example a Secret mounted as files. Safe to repeat.

    Parameters
    ----------
    folder
        A folder with one key in each file; the file's name is a role (`admin`) or a name and a role
        (`billing.producer`).
    wait
        Seconds to wait for a store that is still starting.
    client_ids
        `<file>=<client>`: a client that the key in that file may submit as, besides its own name. May be given more
        than once.
    """
    files = sorted(file for file in folder.glob("*") if file.is_file() and not file.name.startswith("."))
    if not files:
        stop(f"{folder} has no file with a key", NOT_FOUND)
    now_ms = time.time_ns() // 1_000_000
    clients = _clients_of(client_ids or (), {file.name for file in files})

    async def adopt_all(keys: AccessKeys) -> list[AccessKey]:
        return [
            await keys.adopt(
                file.read_text().strip(), file.name, file.name.rpartition(".")[2], now_ms, clients.get(file.name, ())
            )
            for file in files
        ]

    for key in _with_keys(lambda keys: _when_reachable(lambda: adopt_all(keys), wait)):
        print_line(_line(key))


def show(*, output: Annotated[Format, cyclopts.Parameter(alias="-o")] = "table") -> None:
    """List every key: id, name, role, the clients it may submit as, and whether it is revoked.

    Parameters
    ----------
    output
        The output format.
    """
    keys = _with_keys(AccessKeys.all)
    if output == "table":
        for key in keys:
            print_line(_line(key))
    else:
        show_items([KeyRow(key.key_id, key.name, key.role, key.is_revoked, key.client_ids) for key in keys], {}, output)


def revoke(key_id: str) -> None:
    """Revoke a key; the service refuses it within a few seconds.

    Parameters
    ----------
    key_id
        The part between the underscores: tq_<id>_….
    """
    print_line(_line(_with_keys(lambda keys: keys.revoke(key_id))))


async def _when_reachable(act: Callable[[], Awaitable[T]], seconds: float) -> T:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await act()
        except Unavailable:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(RETRY_SECONDS)


def _clients_of(named: Sequence[str], files: set[str]) -> dict[str, list[str]]:
    clients = dict[str, list[str]]()
    for each in named:
        file, _, client_id = each.partition("=")
        if file not in files or not client_id:
            stop(f"--client-id {each!r} is not <file>=<client> with a file of the folder", USAGE)
        clients.setdefault(file, []).append(client_id)
    return clients


def _line(key: AccessKey) -> str:
    clients = f"  as {', '.join(key.client_ids)}" if key.client_ids else ""
    return f"{key.key_id}  {key.role:<9} {key.name}{clients}{'  (revoked)' if key.is_revoked else ''}"


def _with_keys(act: Callable[[AccessKeys], Awaitable[T]]) -> T:
    settings = settings_from(environ_with())
    if not settings.redis_url:
        stop("REDIS_URL is not set; set it to the URL of the service's store", USAGE)

    async def run() -> T:
        client = connect(settings.redis_url)
        try:
            return await act(AccessKeys(client, Keys(settings.queue.queue_name, settings.queue.partition)))
        finally:
            await client.aclose()

    try:
        return asyncio.run(run())
    except InvalidRequest as error:
        stop(str(error), NOT_FOUND if error.field == "key_id" else USAGE)
    except (OSError, StoreUrlError, Unavailable) as error:
        stop_with(error)
