"""Processes with `trouble.c` preloaded: their clock can jump, and their disk be full or slow, without being root."""

import functools
import mmap
import shutil
import struct
import subprocess
from pathlib import Path

from tideq.embedded import bundled_valkey

SOURCE = Path(__file__).with_name("trouble.c")
LAYOUT = struct.Struct("=qqq")


class Shim:
    """`missing` says why it is not there; then the process is a plain one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "trouble"
        self._path.write_bytes(bytes(LAYOUT.size))
        with self._path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), LAYOUT.size)
        self.ahead_ms, self._is_full, self._sync_ms = 0, False, 0
        library, self.missing = _library(folder.parent)
        self.environ = {"TROUBLE_FILE": str(self._path), "LD_PRELOAD": str(library)} if library else {}
        """For the process that is to be in trouble."""
        self.binary = self._wrapped_valkey(folder)

    def jump(self, milliseconds: int) -> None:
        self.ahead_ms += milliseconds
        self._tell()

    def fill_disk(self, is_full: bool) -> None:
        self._is_full = is_full
        self._tell()

    def slow_disk(self, sync_ms: int) -> None:
        """How long a sync takes from now on; one under way ends when it has taken that long."""
        self._sync_ms = sync_ms
        self._tell()

    def _tell(self) -> None:
        self._shared[:] = LAYOUT.pack(self.ahead_ms, self._is_full, self._sync_ms)

    def _wrapped_valkey(self, folder: Path) -> Path:
        valkey, wrapper = bundled_valkey(), folder / "valkey-in-trouble"
        assert valkey is not None
        if not self.environ:
            return valkey
        exports = " ".join(f"{name}='{value}'" for name, value in self.environ.items())
        wrapper.write_text(f"#!/bin/sh\nexport {exports}\nexec '{valkey}' \"$@\"\n")
        wrapper.chmod(0o755)
        return wrapper


@functools.cache
def _library(folder: Path) -> tuple[Path | None, str]:
    """Compiled once for all processes of a run; without a compiler, why there is none."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None, "no C compiler: no clock jumps, no full disks and no slow ones"
    library = folder / "trouble.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, SOURCE], check=True, timeout=180)
    return library, ""
