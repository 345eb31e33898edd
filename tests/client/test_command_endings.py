"""How commands end, and what only terminals are shown."""

import asyncio
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.bench import Bench, held
from tests.api.running import TIDEQ, environ, serving, tideq
from tests.client.commands import Run, environ_for, line_within, lines, run_on_terminal, runner
from tests.client.services import command_done
from tests.client.terminals import at_terminal
from tests.client.workshop import fail_one, recorded
from tests.stores import StoreUnderTest, free_port
from tideq.cli.commands import app as tideq_app
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
        assert "Check the URL" in done.stderr

    def test_an_address_that_is_none_is_2(self) -> None:
        assert runner("tideq.example")("queue", "stats").returncode == 2

    async def test_being_interrupted_is_130(
        self, url: str, client: AsyncClient, workers: Bench, task_type: str
    ) -> None:
        """While something happens to the task that does not end it: then it would no longer be watched."""
        task_id, worker_id = (await client.submit(task_type)).task_id, await workers.register(task_types=[task_type])
        watching = await asyncio.create_subprocess_exec(
            *(TIDEQ, "tasks", "watch", task_id), env=environ_for(url), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert watching.stdout is not None
        while not (line := await line_within(watching.stdout)):
            await workers.sync(worker_id, releases=[held(await workers.claimed(worker_id))])

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
            subprocess.run, ["bash", "-c", command], env=environ_for(url), capture_output=True, timeout=180, check=False
        )

        assert (done.returncode, done.stderr, len(done.stdout)) == (0, b"", 10)


class TestOperators:
    """Commands that need no service end in the same way."""

    @pytest.fixture
    def away(self) -> dict[str, str]:
        return environ(f"redis://127.0.0.1:{free_port()}", "away")

    def test_a_store_that_is_away_is_5(self, away: dict[str, str]) -> None:
        done = tideq(away, "keys", "list")

        assert (done.returncode, done.stdout) == (5, "")
        assert done.stderr.startswith("error: ")

    @pytest.mark.parametrize(
        ("command", "wrong"),
        [("keys", {"TIDEQ_PROT": "1"}), ("monitor", {"REDIS_URL": ""}), ("migrate", {"DATABASE_URL": ""})],
    )
    def test_a_setting_that_is_wrong_or_missing_is_2(
        self, away: dict[str, str], command: str, wrong: dict[str, str]
    ) -> None:
        done = tideq({**away, **wrong}, command, *(["list"] if command == "keys" else []))

        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1

    def test_keys_that_are_not_there_are_3(self, store: StoreUnderTest, task_type: str, tmp_path: Path) -> None:
        settings = environ(store.url, task_type)

        assert tideq(settings, "keys", "revoke", "0123").returncode == 3
        assert tideq(settings, "keys", "adopt", str(tmp_path / "nowhere")).returncode == 3

    def test_keys_are_listed_for_programs_without_their_digests(self, store: StoreUnderTest, task_type: str) -> None:
        settings = environ(store.url, task_type)
        key = command_done(settings, "keys", "create", "eve", "--role", "viewer")

        (listed,) = lines(tideq(settings, "keys", "list", "-o", "jsonl"))

        expected = {"key_id": key.split("_")[1], "name": "eve", "role": "viewer", "is_revoked": False}
        assert listed == {**expected, "client_ids": []}

    def test_a_typo_is_answered_with_what_was_meant(self, run: Run) -> None:
        wrong, misspelt = run("task", "list"), run("tasks", "list", "--statsu", "queued")

        assert (wrong.returncode, misspelt.returncode) == (2, 2)
        assert 'Did you mean "tasks"?' in wrong.stderr
        assert "Did you mean --status?" in misspelt.stderr


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
        assert await asyncio.to_thread(run_on_terminal, url, *command, "--no-color") == plain


def test_progress_is_for_terminals(run: Run, url: str, task_type: str, tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text('{"n": 1}\n' * 3)
    command = ("submit", task_type, "--lines", str(tmp_path / "tasks"), "-o", "jsonl")

    piped = run(*command)
    with at_terminal(url, *command) as terminal:
        assert terminal.end() == 0

    assert (len(piped.stdout.splitlines()), piped.stderr) == (3, "")
    assert "submitting" in terminal.seen


def test_the_page_about_the_command_names_every_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    mentioned = {word for words in re.findall(r"`([a-z][a-z/ ]*)`", page) for word in re.split("[/ ]", words)}
    nouns = [name for name in tideq_app if not name.startswith("-")]
    verbs = [verb for noun in ("tasks", "dlq", "workers", "queue", "context", "keys") for verb in tideq_app[noun]]

    assert not {*nouns, *(verb for verb in verbs if not verb.startswith("-"))} - mentioned


def test_a_shell_learns_what_it_can_complete() -> None:
    command = f"source <('{TIDEQ}' completion bash) && complete -p tideq"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=180, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip().endswith("tideq")


def test_help_names_every_command_and_stays_quick() -> None:
    """The heavy parts are imported by the command that needs them."""
    code = "import sys, tideq.cli; sys.argv = ['tideq', '--help']; tideq.cli.main()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True, timeout=180
    )

    assert all(noun in done.stdout for noun in ("submit", "tasks", "dlq", "workers", "queue", "top", "doctor"))
    assert not [name for name in ("httpx", "litestar", "psycopg", "redis") if f" {name}\n" in done.stderr]
