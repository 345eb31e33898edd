"""How commands end, and what only terminals are shown."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.bench import Bench
from tests.api.running import TIDEQ, environ, serving
from tests.client.commands import Run, environ_for, line_within, run_on_terminal, runner
from tests.client.services import command_done
from tests.client.workshop import fail_one, recorded
from tests.stores import StoreUnderTest, free_port
from tideq.client import AsyncClient

NOBODY = "0195546e-3c7a-7d21-9f04-00a1b2c3d4e5"


@pytest.fixture
def form() -> str:
    """The client at hand only looks on here."""
    return "async"


@pytest.fixture
def run(url: str) -> Run:
    return runner(url)


class TestEndings:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("tasks",),
            ("tasks", "get", NOBODY, "-o", "yaml"),
            ("tasks", "cancel"),
            ("submit",),
            ("queue", "stats", "--x"),
        ],
    )
    def test_asking_wrongly_is_2(self, run: Run, arguments: tuple[str, ...]) -> None:
        done = run(*arguments)

        assert done.returncode == (0 if arguments == ("tasks",) else 2)

    def test_not_finding_is_3(self, run: Run) -> None:
        done = run("tasks", "get", NOBODY)

        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("error: ")

    def test_not_being_allowed_is_4(self, store: StoreUnderTest, task_type: str, tmp_path: Path) -> None:
        settings = environ(store.url, task_type, TIDEQ_AUTH="keys")
        key = command_done(settings, "keys", "create", "eve", "--role", "viewer")
        with serving(settings, tmp_path) as running:
            nobody, viewer = runner(running.url), runner(running.url, TIDEQ_API_KEY=key)

            assert nobody("queue", "stats").returncode == 4
            assert viewer("submit", task_type).returncode == 4
            assert viewer("queue", "stats").returncode == 0
            assert nobody("queue", "stats", "--api-key", key).returncode == 0

    def test_not_reaching_anyone_is_5(self) -> None:
        done = runner(f"http://127.0.0.1:{free_port()}")("queue", "stats")

        assert (done.returncode, done.stdout) == (5, "")
        assert "does it run?" in done.stderr

    def test_an_address_that_is_none_is_2(self) -> None:
        assert runner("tideq.example")("queue", "stats").returncode == 2

    async def test_being_interrupted_is_130(self, url: str, client: AsyncClient, task_type: str) -> None:
        task_id = (await client.submit(task_type)).task_id
        watching = await asyncio.create_subprocess_exec(
            *(TIDEQ, "tasks", "watch", task_id), env=environ_for(url), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert watching.stdout is not None
        await client.cancel(task_id)
        await client.retry(task_id)
        while not (line := await line_within(watching.stdout)):
            await client.cancel(task_id)
            await client.retry(task_id)

        watching.send_signal(signal.SIGINT)
        _, complaint = await watching.communicate()

        assert line
        assert (watching.returncode, complaint) == (130, b"error: interrupted\n")

    async def test_a_reader_who_has_seen_enough_is_no_failure(
        self, url: str, client: AsyncClient, task_type: str
    ) -> None:
        ids = [(await client.submit(task_type, {"text": "x" * 20_000})).task_id for _ in range(20)]
        await recorded(client, ids[-1])
        command = f"set -o pipefail; '{TIDEQ}' tasks list --type {task_type} -o jsonl | head -c 10"

        done = await asyncio.to_thread(
            subprocess.run, ["bash", "-c", command], env=environ_for(url), capture_output=True, timeout=60, check=False
        )

        assert (done.returncode, done.stderr, len(done.stdout)) == (0, b"", 10)


class TestColours:
    async def test_what_a_worker_says_cannot_command_a_terminal(
        self, url: str, client: AsyncClient, workers: Bench, task_type: str
    ) -> None:
        task_id = (await client.submit(task_type)).task_id
        await fail_one(workers, task_type, "\x1b[2Jgone\nok  completed")
        await recorded(client, task_id)

        seen = await asyncio.to_thread(run_on_terminal, url, "tasks", "list", "--type", task_type, NO_COLOR="1")

        assert "\x1b" not in seen
        assert r"\x1b[2Jgone\nok  completed" in seen
        assert len(seen.splitlines()) == 2

    async def test_they_are_for_terminals_and_not_where_they_are_unwanted(
        self, run: Run, url: str, client: AsyncClient, task_type: str
    ) -> None:
        task_id = (await client.submit(task_type)).task_id
        await client.cancel(task_id)
        command = ("tasks", "get", task_id)

        seen = await asyncio.to_thread(run_on_terminal, url, *command)
        plain = await asyncio.to_thread(run_on_terminal, url, *command, NO_COLOR="1")

        assert "\x1b[33mcancelled\x1b[0m" in seen
        assert "\x1b" not in plain
        assert run(*command).stdout == plain


def test_help_names_every_command_and_stays_quick() -> None:
    """The heavy parts are imported by the command that needs them."""
    code = "import sys, tideq.cli; sys.argv = ['tideq', '--help']; tideq.cli.app(exit_on_error=False)"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert all(noun in done.stdout for noun in ("submit", "tasks", "dlq", "workers", "queue"))
    assert not [name for name in ("httpx", "litestar", "psycopg", "redis") if f" {name}\n" in done.stderr]
