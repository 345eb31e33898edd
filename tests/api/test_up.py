"""`tideq up`: what it prints works as printed, it stops cleanly, and it comes back after being killed."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.api.running import START_SECONDS, TIDEQ
from tests.stores import free_port

STOPPED = "Ctrl-C stops it"


@dataclass(frozen=True)
class Up:
    process: subprocess.Popen[str]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    @property
    def url(self) -> str:
        found = re.search(r"TideQ answers at (\S+)", self.said)
        assert found is not None
        return found[1]

    @property
    def shell_lines(self) -> str:
        """The lines it tells people to type."""
        return "\n".join(re.findall(r"^  (?=id=|curl )(.*)$", self.said, re.MULTILINE))

    def descendants(self) -> list[int]:
        found = [self.process.pid]
        for pid in found:
            found += _children(pid)
        return found[1:]


@contextmanager
def up(data_dir: Path, *options: str, port: int = 0) -> Generator[Up]:
    log = data_dir.with_suffix(f".{time.monotonic_ns()}.log")
    environ = {
        name: text for name, text in os.environ.items() if not name.startswith(("TIDEQ_", "REDIS_", "DATABASE_"))
    }
    command = [TIDEQ, "up", "--port", str(port), "--data-dir", str(data_dir), *options]
    with log.open("w") as said:
        process = subprocess.Popen(command, env=environ, stdout=said, stderr=subprocess.STDOUT, text=True)
    running = Up(process, log)
    try:
        _wait_for_greeting(running)
        yield running
    finally:
        process.kill()
        process.wait()


def _wait_for_greeting(running: Up) -> None:
    deadline = time.monotonic() + 3 * START_SECONDS
    while STOPPED not in running.said:
        assert running.process.poll() is None, running.said
        assert time.monotonic() < deadline, running.said
        time.sleep(0.02)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _are_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def _until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _are_gone(pids):
        assert time.monotonic() < deadline, "processes were left behind"
        time.sleep(0.01)


def _typed(lines: str) -> str:
    return subprocess.run(["bash", "-c", lines], capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl on this machine")
def test_what_it_prints_works_as_printed_and_its_data_is_kept(tmp_path: Path) -> None:
    with up(tmp_path / "data") as running:
        answer = json.loads(_typed(running.shell_lines))
        progress = running.said.partition("TideQ answers")[0]
        pids = running.descendants()
        running.process.send_signal(signal.SIGTERM)
        status = running.process.wait(120)

    assert answer["status"] == "completed"
    assert answer["result"] == {"greeting": "Hello, tide!"}
    assert progress.count("Starting") >= 3, "it must be seen to start its parts"
    assert status == 0, running.said
    assert len(pids) >= 3
    assert _are_gone(pids)
    assert "Traceback" not in running.said

    with up(tmp_path / "data") as again:
        kept = httpx.get(f"{again.url}/api/v1/tasks/{answer['task_id']}").json()
    assert kept["result"] == {"greeting": "Hello, tide!"}


def test_killed_it_leaves_nothing_behind_and_starts_again_at_once(tmp_path: Path) -> None:
    port = free_port()
    with up(tmp_path / "data", port=port) as running:
        task = httpx.post(f"{running.url}/api/v1/tasks", json={"task_type": "nobody-does-this"}).json()
        pids = running.descendants()
        running.process.kill()

    with up(tmp_path / "data", port=port) as again:
        kept = httpx.get(f"{again.url}/api/v1/tasks/{task['task_id']}").json()
        greeting = {"task_type": "hello", "parameters": {"name": "again"}}
        greeted = httpx.post(f"{again.url}/api/v1/tasks", json=greeting).json()
        done = httpx.get(f"{again.url}/api/v1/tasks/{greeted['task_id']}/wait", timeout=40).json()

    assert kept["status"] == "queued"
    assert done["result"] == {"greeting": "Hello, again!"}
    _until_gone(pids)


def _command(pid: int) -> str:
    """Nothing of one that has ended since: PostgreSQL begins processes that do."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_without_the_demo_nobody_does_the_work(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--no-demo") as running:
        commands = [_command(pid) for pid in running.descendants()]

    assert any(commands)
    assert not any("demo.py" in command for command in commands)
    assert "demo worker" not in running.said


def test_a_port_in_use_is_said_before_anything_starts(tmp_path: Path) -> None:
    with up(tmp_path / "first", "--no-demo") as running:
        port = running.url.rpartition(":")[2]
        command = [TIDEQ, "up", "--port", port, "--data-dir", str(tmp_path / "second")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert ended.returncode == 1
    assert "in use" in ended.stderr
    assert not (tmp_path / "second").exists()
