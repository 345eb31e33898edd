"""Building and running the image where there is no Docker: buildah, podman and runc, with storage of their own.

The shipped Containerfile is built unchanged but for its base, which is made of Debian packages: there may be no
registry. Layers are kept in .tools, so only what changed is built again.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.tools import FOLDER

ROOT = Path(__file__).parents[2]
IMAGE, BASE = "localhost/tideq:test", "localhost/tideq-base:bookworm"
PROGRAMS = ("buildah", "podman", "runc", "mmdebstrap")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
BUILD_SECONDS = 800
HARDENED = ("--read-only", "--tmpfs=/tmp", "--cap-drop=all", "--security-opt=no-new-privileges", "--pids-limit=64")
SETTINGS = """\
[containers]
default_ulimits = ["nofile=4096:16384", "nproc=4096:16384"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class CannotBuild(Exception):
    """What this machine lacks."""


class Containers:
    def __init__(self, folder: Path = FOLDER / "containers") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder = folder.resolve()
        (folder / "containers.conf").write_text(SETTINGS)
        self._storage = (f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}", "--storage-driver=overlay")
        self._environ = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}

    def build(self) -> None:
        if not self._run("buildah", "images", "--quiet", BASE, check=False).stdout:
            self._build_base()
        trusted = (f"--volume={CERTIFICATES}:{CERTIFICATES}:ro",) if CERTIFICATES.exists() else ()
        options = ("--layers", "--format=docker", f"--build-arg=BASE_IMAGE={BASE}", f"--tag={IMAGE}", *trusted)
        self._bud(*options, "--file=Containerfile", str(ROOT))

    def config(self) -> dict[str, Any]:
        """What the image says of itself; podman tells of its health check elsewhere."""
        (told,) = json.loads(self.podman("inspect", "--type=image", IMAGE).stdout)
        return {**told["Config"], "Healthcheck": told["Healthcheck"]}

    def run(self, *arguments: str, user: str = "", entrypoint: str = "python") -> str:
        """A program in the image, as restricted as can be; what it says."""
        as_user = (f"--user={user}",) if user else ()
        options = ("--rm", "--network=none", *HARDENED, *as_user, f"--entrypoint={entrypoint}")
        return self.podman("run", *options, IMAGE, *arguments).stdout

    def podman(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run("podman", verb, *arguments)

    def _build_base(self) -> None:
        packages = "python3,python3-venv,python3-pip,ca-certificates"
        archive = self._folder / "base.tar"
        make = ("mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", "bookworm", str(archive))
        done = subprocess.run(make, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
        if done.returncode:
            raise CannotBuild(f"mmdebstrap cannot make a base: {done.stderr.strip()[-200:]}")
        (self._folder / "Containerfile.base").write_text("FROM scratch\nADD base.tar /\n")
        self._bud(f"--tag={BASE}", f"--file={self._folder / 'Containerfile.base'}", str(self._folder))
        archive.unlink()

    def _bud(self, *arguments: str) -> None:
        self._run("buildah", "build", "--quiet", "--isolation=chroot", "--network=host", *arguments)

    def _run(self, program: str, verb: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [program, *self._storage, verb, *arguments]
        done = subprocess.run(
            command, env=self._environ, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
        assert not check or done.returncode == 0, done.stderr[-3000:]
        return done


def missing() -> str:
    """Why no image can be built here, empty where one can."""
    lacking = [name for name in PROGRAMS if not shutil.which(name)]
    if lacking:
        return f"the image is not built: no {', '.join(lacking)} (Debian: apt install {' '.join(PROGRAMS)})"
    return "" if os.geteuid() == 0 else "the image is not built: its layers need root"
