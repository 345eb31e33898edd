"""`--reload`: restarts the command when a source file under the current folder changes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LOOK_SECONDS = 0.3
STOP_SECONDS = 5.0
"""How long the old process may finish its tasks before it is killed; the developer waits for the new one."""
IGNORED = {".venv", ".git", "node_modules", "__pycache__"}


def run_with_reload() -> int:
    """Returns the exit status of the last process. A process that ends by itself is restarted at the next change."""
    command = [sys.executable, "-m", "tideq.cli", *(word for word in sys.argv[1:] if word != "--reload")]
    return Reloading(command).run()


class Reloading:
    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._signal_count = 0

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note_signal)
        seen, child = _sources(), self._start()
        while not self._signal_count:
            if _has_ended(child, LOOK_SECONDS):
                time.sleep(LOOK_SECONDS)
            if (now := _sources()) != seen:
                seen = now
                self._end(child)
                child = self._start()
        return self._pass_signals_on(child)

    def _note_signal(self, *_: object) -> None:
        self._signal_count += 1

    def _start(self) -> "subprocess.Popen[bytes]":
        """In a process group of its own: Ctrl-C reaches only this process, which passes it on."""
        return subprocess.Popen(self._command, process_group=0)

    def _end(self, child: "subprocess.Popen[bytes]") -> None:
        """SIGTERM, a second SIGTERM that skips the drain, then SIGKILL."""
        for stop in (child.terminate, child.terminate, child.kill):
            stop()
            if _has_ended(child, STOP_SECONDS):
                return

    def _pass_signals_on(self, child: "subprocess.Popen[bytes]") -> int:
        """A second signal makes the worker skip its drain."""
        passed_count = 0
        while child.poll() is None:
            if passed_count < self._signal_count:
                passed_count += 1
                child.terminate()
            _has_ended(child, LOOK_SECONDS)
        return child.returncode


def _has_ended(child: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _sources() -> dict[str, float]:
    """Source files and their modification times. A file deleted during the scan is left out, which is a change too."""
    found: dict[str, float] = {}
    for folder, folders, files in os.walk(Path.cwd()):
        folders[:] = [name for name in folders if name not in IGNORED]
        for path in (os.path.join(folder, name) for name in files if name.endswith(".py")):
            try:
                found[path] = os.stat(path).st_mtime
            except FileNotFoundError:
                continue
    return found
