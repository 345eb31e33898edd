"""Who may import whom. The tree is the architecture, so a test keeps it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("queue_core", "persistence", "api", "workers", "tideq")

ALLOWED: dict[str, set[str]] = {
    "queue_core": {"queue_core"},
    "persistence": {"queue_core", "persistence"},
    "api": {"queue_core", "persistence", "api"},
    "workers": {"queue_core", "persistence", "workers"},
    "tideq": {"queue_core", "persistence", "api", "workers", "tideq"},
}
ONLY_IMPORTER = {
    "redis": ("queue_core/store", "queue_core/scripts"),
    "psycopg": ("persistence",),
    "litestar": ("api",),
    "aiohttp": ("tideq/client/http/over_aiohttp.py",),
    "urllib3": ("tideq/client/http/over_urllib3.py",),
}
TYPING_FREE = ("workers/runtime",)
"""In the user's process: nothing there may pull in a store or a database."""

EDGES = {
    "redis.exceptions": {
        *(f"queue_core/store/{name}.py" for name in ("driver_errors", "server_identity", "store_client")),
        "queue_core/scripts/runner.py",
    },
    "psycopg.errors": {
        "persistence/database.py",
        "persistence/recovery/store_guard.py",
        "persistence/replication/writer.py",
        "persistence/schema/migrations.py",
    },
}
"""Where a driver's errors are known. They leave these as errors of ours: whoever else catches one has met a hole."""

OF_THE_CLIENT = ("tideq.client.http", "tideq.client.heartbeat_thread", "tideq.client.encoding")
"""What workers use too: the client stands alone, so nothing points back."""
SERVICE_ONLY_PACKAGES = (
    *(
        f"tideq.queue_core.{name}"
        for name in ("engine", "outbox", "partitioning", "polls", "queue", "scripts", "store")
    ),
    "tideq.persistence",
)
SERVICE_ONLY = {"litestar", "psycopg", "redis", "structlog", "uvicorn"}


def modules() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if not _is_linked(path)]


def _is_linked(path: Path) -> bool:
    return any(parent.is_symlink() for parent in path.parents)


def imports(path: Path) -> Iterator[str]:
    """Every import, those under TYPE_CHECKING and inside functions included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _home(module: str) -> str:
    """`tideq.api.routes` belongs to `api`; the rest of `tideq` to itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in FOLDERS else "tideq"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    folder = path.relative_to(ROOT).parts[0]

    for module in imports(path):
        root = module.partition(".")[0]
        assert root not in FOLDERS or root == "tideq", f"{module}: import it as tideq.{module}"
        if root == "tideq" and not (folder == "workers" and module.startswith(OF_THE_CLIENT)):
            assert _home(module) in ALLOWED[folder], f"{folder} must not know {module}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_driver_has_one_importer(path: Path) -> None:
    place = str(path.relative_to(ROOT))

    for module in imports(path):
        owner = ONLY_IMPORTER.get(module.partition(".")[0])
        assert owner is None or place.startswith((*owner, "tideq/testing")), f"only {owner} may import {module}"
        if place.startswith(TYPING_FREE):
            assert not module.startswith(SERVICE_ONLY_PACKAGES), f"{place} runs at the user's"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_drivers_errors_are_known_at_its_edge_only(path: Path) -> None:
    place = str(path.relative_to(ROOT))

    for module, edge in EDGES.items():
        assert module not in named(path) or place in edge, f"{place} knows {module}"


def named(path: Path) -> set[str]:
    """Modules of errors that are imported or reached through their package, `psycopg.OperationalError` among them."""
    driver, found = {"psycopg": "psycopg.errors", "redis": "redis.exceptions"}, set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in driver:
            names = {alias.name for alias in node.names}
            found |= {driver[node.module]} if any(each in ("errors", "exceptions") for each in names) else set()
            found |= {driver[node.module]} if any(each.endswith("Error") for each in names) else set()
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in driver:
            is_error = node.attr in ("errors", "exceptions") or node.attr.endswith("Error")
            found |= {driver[node.value.id]} if is_error else set()
    return found | (set(imports(path)) & {"redis.exceptions", "psycopg.errors"})


@pytest.mark.parametrize("path", sorted((ROOT / "tideq/client").rglob("*.py")), ids=lambda path: path.stem)
def test_the_client_imports_nothing_of_the_service(path: Path) -> None:
    for module in imports(path):
        root = module.partition(".")[0]
        assert root not in SERVICE_ONLY, f"{module} has no place in a user's process"
        assert root != "tideq" or module.startswith("tideq.client"), f"the client stands alone, without {module}"


def test_the_http_protocol_is_fenced() -> None:
    """It knows nothing of ours and one file imports it, so it can be replaced by uvicorn's own without a trace."""
    fence = "tideq.api.http11"
    inside = [path for path in modules() if path.is_relative_to(ROOT / "api/http11")]
    importers = {
        str(path.relative_to(ROOT))
        for path in modules()
        if path not in inside and any(module.startswith(fence) for module in imports(path))
    }

    assert [
        module for path in inside for module in imports(path) if module.startswith("tideq") and fence not in module
    ] == []
    assert importers == {"api/server.py"}


def test_the_links_inside_tideq_lead_to_the_folders() -> None:
    for folder in FOLDERS[:-1]:
        link = ROOT / "tideq" / folder
        assert link.is_symlink()
        assert link.resolve() == ROOT / folder


def test_no_name_says_nothing() -> None:
    for path in modules():
        assert path.stem not in {"utils", "util", "common", "helpers", "misc"}, path
