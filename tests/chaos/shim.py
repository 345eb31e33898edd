"""Valkey with `trouble.c` preloaded: its clock can jump, and its disk be full or slow, without being root."""

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

from tideq.embedded import bundled_valkey

SOURCE = Path(__file__).with_name("trouble.c")
LAYOUT = struct.Struct("=qqq")


class Shim:
    """`missing` says why it is not there; then the server is a plain one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        valkey = bundled_valkey()
        assert valkey is not None
        self.binary, self.missing = valkey, ""
        self._path = folder / "trouble"
        self._path.write_bytes(bytes(LAYOUT.size))
        with self._path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), LAYOUT.size)
        self.ahead_ms, self._is_full, self._sync_ms = 0, False, 0
        if compiler := shutil.which("cc") or shutil.which("gcc"):
            self.binary = self._wrapped(compiler, valkey, folder)
        else:
            self.missing = "no C compiler: no clock jumps, no full disks and no slow ones"

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

    def _wrapped(self, compiler: str, valkey: Path, folder: Path) -> Path:
        library, wrapper = folder / "trouble.so", folder / "valkey-in-trouble"
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, SOURCE], check=True, timeout=180)
        lines = ["#!/bin/sh", f"export TROUBLE_FILE='{self._path}' LD_PRELOAD='{library}'", f"exec '{valkey}' \"$@\""]
        wrapper.write_text("\n".join(lines) + "\n")
        wrapper.chmod(0o755)
        return wrapper
