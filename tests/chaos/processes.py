"""Processes of a site: killed at any moment, and started again by whoever looks after them."""

import os
import signal
import subprocess
from pathlib import Path

from tests.chaos.notes import Notebook


class Process:
    def __init__(self, name: str, argv: list[str], environ: dict[str, str], folder: Path, notebook: Notebook) -> None:
        self.name = name
        self._argv = argv
        self._environ = environ
        self._folder = folder
        self._notebook = notebook
        self._process: subprocess.Popen[bytes] | None = None
        self.is_frozen = False
        self.is_wanted = False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """In its own folder, so that what it imports is what it was told to."""
        with (self._folder / f"{self.name}.log").open("ab") as said:
            said.write(f"=== start {self.name}\n".encode())
            said.flush()
            self._process = subprocess.Popen(
                self._argv, env=self._environ, cwd=self._folder, stdout=said, stderr=subprocess.STDOUT
            )
        self.is_wanted, self.is_frozen = True, False
        self._notebook.note("started", name=self.name, pid=self.pid)

    def kill(self) -> None:
        self.is_wanted = False
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def leave(self, seconds: float = 60) -> None:
        """As it is told to by whoever replaces it: it ends by itself, in order."""
        self.is_wanted = False
        if self._process is not None:
            self._process.terminate()
            self._notebook.note("left", name=self.name, pid=self.pid, code=self._process.wait(seconds))

    def run_code(self, code: Path) -> None:
        """Another tree, from the next start on."""
        self._environ = {**self._environ, "PYTHONPATH": str(code)}

    def freeze(self) -> None:
        self.is_frozen = True
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        if self.is_frozen and self.is_up:
            os.kill(self.pid, signal.SIGCONT)
        self.is_frozen = False

    def look_after(self) -> None:
        """As an orchestrator would: what ended by itself is started again, and noted."""
        if self.is_wanted and not self.is_up:
            assert self._process is not None
            self._notebook.note("ended", name=self.name, pid=self.pid, code=self._process.returncode)
            self.start()
