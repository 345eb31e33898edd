"""`--reload`: the same command again whenever a source file under this folder changes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LOOK_SECONDS = 0.5
IGNORED = {".venv", ".git", "node_modules", "__pycache__"}


def run_with_reload() -> int:
    command = [sys.executable, "-m", "tideq.cli", *(word for word in sys.argv[1:] if word != "--reload")]
    seen = _sources()
    child = subprocess.Popen(command)
    try:
        while child.poll() is None or seen == _sources():
            time.sleep(LOOK_SECONDS)
            if (now := _sources()) != seen:
                seen = now
                _stop(child)
                child = subprocess.Popen(command)
    except KeyboardInterrupt:
        _stop(child)
    return child.returncode or 0


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
    child.wait()


def _sources() -> dict[str, float]:
    """Source files and when they changed; a file that vanishes meanwhile is a change as well."""
    found: dict[str, float] = {}
    for folder, folders, files in os.walk(Path.cwd()):
        folders[:] = [name for name in folders if name not in IGNORED]
        for name in files:
            path = os.path.join(folder, name)
            if name.endswith(".py") and os.path.exists(path):
                found[path] = os.stat(path).st_mtime
    return found
