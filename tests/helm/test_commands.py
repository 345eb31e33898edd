"""What the chart's containers run, as processes against real stores: all that `helm test` and the Jobs stand for."""

import base64
import contextlib
import os
import secrets
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.running import TIDEQ, environ, serving
from tests.helm.chart import HELM, NO_HELM, Json, container, containers, one, pod_specs, rendered
from tests.stores import StoreUnderTest, free_port
from tideq.cli.commands import app
from tideq.queue_core.engine.access_keys import KEY, ROLES
from tideq.workers.runtime.health import LOOP_LAG

WAIT_SECONDS = 60.0


@pytest.fixture
def settings(store: StoreUnderTest, database_url: str) -> dict[str, str]:
    """A queue of its own, and keys asked for although it is loopback."""
    return environ(store.url, uuid.uuid4().hex[:12], TIDEQ_AUTH="keys", DATABASE_URL=database_url)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A Secret as it is mounted: a file an entry, and what the kubelet puts beside them."""
    folder = tmp_path / "keys"
    (folder / "..data").mkdir(parents=True)
    for name in (*ROLES, "billing.producer"):
        (folder / name).write_text(_new_key() + "\n")
    return folder


def _new_key() -> str:
    return f"tq_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}"


def _try(settings: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself, however busy the machine is."""
    return subprocess.run([TIDEQ, *command], env=settings, capture_output=True, text=True, timeout=90, check=False)


def _run(settings: dict[str, str], *command: str) -> str:
    done = _try(settings, *command)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def _running(settings: dict[str, str], *command: str, cwd: Path | None = None) -> Generator[subprocess.Popen[str]]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen([TIDEQ, *command], env=settings, cwd=cwd, stdout=quiet, stderr=quiet, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.05)


def _answer(url: str) -> httpx.Response | None:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url, timeout=5)
    return None


def _status(url: str) -> int | None:
    answer = _answer(url)
    return answer and answer.status_code


def _is_up(url: str) -> bool:
    return _status(url) == 200


def test_from_keys_and_schema_to_a_task_that_went_all_the_way_round(
    settings: dict[str, str], keys: Path, tmp_path: Path
) -> None:
    def smoke(url: str, key: str, *options: str) -> subprocess.CompletedProcess[str]:
        return _try({**settings, "TIDEQ_URL": url, "TIDEQ_API_KEY": key.strip()}, "smoke", *options)

    with _running(settings, "migrate", "status", "--allow-newer", "--wait", "inf") as waiting:
        adopted = _run(settings, "keys", "adopt", str(keys), "--wait", "5")
        assert waiting.poll() is None, "it did not wait for the schema"
        _run(settings, "migrate", "--allow-newer", "--wait", "5")
        assert waiting.wait(WAIT_SECONDS) == 0
    with serving(settings, tmp_path) as service:
        without_history = smoke(service.url, (keys / "admin").read_text(), "--wait-seconds", "2")
        with _running(settings, "replicate"):
            done = smoke(service.url, (keys / "admin").read_text())
            stranger = smoke(service.url, _new_key())

    assert len(adopted.splitlines()) == len(ROLES) + 1
    assert without_history.returncode == 1
    assert "history" in without_history.stderr
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("submitted, worked and read back: task ")
    assert stranger.returncode == 4


@pytest.mark.parametrize("verb", ["monitor", "replicate"])
def test_before_the_schema_is_there_a_process_is_alive_and_not_ready_and_ends_when_told(
    settings: dict[str, str], verb: str
) -> None:
    page = f"http://127.0.0.1:{(port := free_port())}"
    with _running(settings, verb, "--health-host", "127.0.0.1", "--health-port", str(port)) as process:
        _eventually(lambda: _is_up(f"{page}/livez"))
        _eventually(lambda: "custody" in _checks(f"{page}/health")["stale_duties"]["value"])

        answers = [_status(f"{page}{path}") for path in ("/livez", "/health", "/metrics", "/nothing")]
        reasons = _checks(f"{page}/health")["stale_duties"]["value"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0

    assert answers == [200, 503, 200, 404]
    assert "schema" in reasons["custody"], reasons


def test_a_worker_is_not_restarted_for_what_a_restart_does_not_mend(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("from tideq import task\n\n\n@task\ndef nothing() -> None: ...\n")
    page, nobody = f"http://127.0.0.1:{(port := free_port())}", f"http://127.0.0.1:{free_port()}"
    command = ("worker", "--handlers", "tasks", "--url", nobody, "--health-port", str(port))
    with _running(dict(os.environ), *command, cwd=tmp_path):
        _eventually(lambda: _is_up(f"{page}/livez"))

        asked = {path: set(_checks(f"{page}/{path}")) for path in ("livez", "health")}

    assert asked["livez"] == {LOOP_LAG}
    assert asked["health"] > {LOOP_LAG, "failed_heartbeats"}


@pytest.mark.skipif(HELM is None, reason=NO_HELM)
class TestRendered:
    """What the chart renders is what was tried above."""

    def test_generated_keys_are_keys_and_all_different(self) -> None:
        data = one(rendered(), "Secret", "-keys")["data"]
        made = {role: base64.b64decode(key).decode() for role, key in data.items()}

        assert set(made) == set(ROLES)
        assert all(KEY.fullmatch(key) for key in made.values())
        assert len({part for key in made.values() for part in key.split("_", 2)[1:]}) == 2 * len(ROLES)

    @pytest.mark.parametrize("scenario", ["default", "ha", "keda", "hardened"])
    def test_every_command_is_one_the_program_takes(self, scenario: str) -> None:
        commands = list(_commands(rendered(scenario)))

        for command in commands:
            app.parse_args(command[1:], exit_on_error=False, print_error=False)
        assert {command[1] for command in commands} >= {"serve", "monitor", "replicate", "migrate", "keys", "smoke"}

    def test_a_worker_is_told_what_its_set_says(self) -> None:
        command = container(rendered("keda"), "-worker-gpu")["command"]

        assert dict(zip(command[2::2], command[3::2], strict=True)) == {
            "--handlers": "myapp.vision",
            "--name": "gpu",
            "--concurrency": "1",
            "--drain-seconds": "1800",
            "--health-host": "$(POD_IP)",
            "--health-port": "8081",
            "--capabilities": "gpu",
        }


def _commands(objects: list[Json]) -> Iterator[list[str]]:
    for _, spec in pod_specs(objects):
        for each in containers(spec):
            if each.get("command", [""])[0] == "tideq":
                yield each["command"]


def _checks(url: str) -> Json:
    answer = _answer(url)
    assert answer is not None
    return answer.json()["checks"]
