"""`tideq top` on a real terminal, against a real service."""

import asyncio
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.bench import Bench
from tests.api.running import environ, serving
from tests.client.commands import Run, answer, run_on_terminal, runner
from tests.client.services import command_done, with_history
from tests.client.terminals import FROM_SCREEN, SHOW_CURSOR, TO_SCREEN, Terminal, at_terminal
from tests.client.workshop import held_back_worker
from tests.stores import StoreUnderTest, free_port
from tideq.client import AsyncClient, Client

QUICK = ("top", "--interval", "0.1")


@pytest.fixture(scope="module")
def url(server_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A queue of its own: what others left behind would fill the screen."""
    settings = {**server_settings, "TIDEQ_QUEUE": uuid.uuid4().hex[:12]}
    with with_history(settings, tmp_path_factory.mktemp("top")) as url:
        yield url


@pytest.fixture
def form() -> str:
    """The client at hand only looks on here."""
    return "async"


@pytest.fixture
def run(url: str) -> Run:
    return runner(url)


@pytest.fixture
def top(url: str) -> Iterator[Terminal]:
    with at_terminal(url, *QUICK) as terminal:
        terminal.until("depth")
        yield terminal


class TestOnce:
    async def test_a_pipe_gets_one_frame_without_commands_to_a_terminal(
        self, run: Run, client: AsyncClient, task_type: str
    ) -> None:
        await client.submit(task_type, priority="high")

        frames = await asyncio.gather(*(asyncio.to_thread(run, *command) for command in (("top",), ("top", "--once"))))

        for done in frames:
            row = next(line for line in done.stdout.splitlines() if task_type in line)
            assert (done.returncode, done.stderr, row.split()) == (0, "", [task_type, "1", "0"])
            assert "\x1b" not in done.stdout
            assert all(
                word in done.stdout for word in ("depth", "high", "p95", "in the last minute", "letters", "slots")
            )

    async def test_it_says_how_many_ended_and_how_and_how_old_the_oldest_of_a_priority_is(
        self, run: Run, client: AsyncClient, task_type: str
    ) -> None:
        submitted = await client.submit(task_type)
        await client.cancel(submitted.task_id)
        await client.submit(task_type, priority="low")

        told = answer(await asyncio.to_thread(run, "top", "-o", "json"))["stats"]["queue"]
        frame = (await asyncio.to_thread(run, "top")).stdout.splitlines()

        assert told["by_type_and_state"][task_type]["cancelled"] == 1
        ended = next(line.split() for line in frame if line.startswith("ended"))
        assert int(ended[ended.index("cancelled") + 1]) == told["totals"]["cancelled"] >= 1
        priorities = next(line for line in frame if line.startswith("priority"))
        assert all(f"{level} {told['by_priority'][level]}" in priorities for level in ("high", "medium", "low"))

    async def test_as_json_it_is_everything_that_is_shown(self, run: Run, client: AsyncClient, task_type: str) -> None:
        await client.submit(task_type)

        told = answer(await asyncio.to_thread(run, "top", "-o", "json"))

        assert told["stats"]["queue"]["by_type"][task_type] == 1
        assert {"at", "stats", "workers", "limits"} == told.keys()

    def test_once_on_a_terminal_leaves_the_screen_alone(self, url: str) -> None:
        seen = run_on_terminal(url, "top", "--once")

        assert "depth" in seen
        assert TO_SCREEN not in seen

    def test_nobody_there_is_5_and_no_interval_is_2(self, run: Run) -> None:
        assert runner(f"http://127.0.0.1:{free_port()}")("top").returncode == 5
        assert run("top", "--interval", "0").returncode == 2

    def test_a_key_that_may_not_see_workers_sees_the_numbers(
        self, store: StoreUnderTest, task_type: str, tmp_path: Path
    ) -> None:
        settings = environ(store.url, task_type, TIDEQ_AUTH="keys")
        keys = {role: command_done(settings, "keys", "create", role, "--role", role) for role in ("producer", "worker")}
        with serving(settings, tmp_path) as running:
            seen = runner(running.url, TIDEQ_API_KEY=keys["producer"])("top")
            refused = runner(running.url, TIDEQ_API_KEY=keys["worker"])("top")
            with at_terminal(running.url, *QUICK, TIDEQ_API_KEY=keys["worker"]) as terminal:
                assert terminal.end() == 4

        assert FROM_SCREEN in terminal.seen
        assert (seen.returncode, "depth    0" in seen.stdout) == (0, True), seen.stderr
        assert (refused.returncode, refused.stdout) == (4, "")


class TestEndings:
    @pytest.mark.parametrize(("typed", "code"), [("q", 0), ("\x1b", 0), ("\x03", 130)])
    def test_keys_leave_the_terminal_as_it_was(self, top: Terminal, typed: str, code: int) -> None:
        while_it_runs = top.attributes
        top.type(typed)

        assert top.end() == code
        assert while_it_runs != top.before == top.attributes
        assert TO_SCREEN in top.seen.partition(FROM_SCREEN)[0]
        assert SHOW_CURSOR in top.seen.rpartition(TO_SCREEN)[2]

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_signals_do_too(self, top: Terminal, number: signal.Signals) -> None:
        top.process.send_signal(number)

        assert top.end() == 128 + number
        assert top.attributes == top.before
        assert FROM_SCREEN in top.seen

    def test_a_closed_window_ends_it(self, top: Terminal) -> None:
        top.hang_up()

        assert top.process.wait(60) == 128 + signal.SIGHUP


class TestKeys:
    def test_pausing_is_asked_about_first(self, top: Terminal, url: str) -> None:
        with Client(url) as client:
            top.type("p")
            top.until("Pause the whole queue? y / n")
            top.type("n")
            top.until("tab other table")
            assert not [limit for limit in client.queue.limits() if limit.paused]

            top.type("py")
            try:
                top.until("PAUSED by anonymous")
                assert [limit.task_type for limit in client.queue.limits() if limit.paused] == [None]
                top.type("p")
                top.until("Resume the whole queue?")
                top.type("y")
                top.until("PAUSED", is_there=False)
            finally:
                client.queue.resume()

    def test_arrows_choose_what_is_sorted_by_and_r_turns_it(self, top: Terminal) -> None:
        top.until("HELD▼")
        top.type("\x1b[C")
        top.until("WORKER▲")
        top.type("r")
        top.until("WORKER▼")
        top.type("\x1b[D\x1bOD")
        top.until("HEARTBEAT▲")
        top.type("\t\x1b[C")
        top.until("TYPE▼")

    async def test_types_are_sorted_and_scrolled(self, top: Terminal, client: AsyncClient, task_type: str) -> None:
        names = [f"{task_type}-{letter}" for letter in "ab"]
        for name in (names[0], names[0], names[1]):
            await client.submit(name)
        order = await asyncio.to_thread(self.order_of, top, names)
        top.type("\tr")
        await asyncio.to_thread(top.until, "WAITING▲")
        turned = self.order_of(top, names)

        assert order.index(names[0]) < order.index(names[1])
        assert turned.index(names[0]) > turned.index(names[1])

    def order_of(self, top: Terminal, names: list[str]) -> list[str]:
        top.resize(120, 200)
        for name in names:
            top.until(name)
        return [line.split()[0] for line in top.screen if line.strip()]


def test_a_window_of_another_size_is_filled(top: Terminal) -> None:
    top.until_size(120, 40)

    top.resize(60, 15)
    top.until_size(60, 15)
    top.until("WORKER")

    top.resize(60, 6)
    top.until("WORKER", is_there=False)
    top.type("p")
    top.until("Pause the whole queue?")
    top.until_size(60, 6)


async def test_words_of_users_cannot_command_the_terminal(url: str, client: AsyncClient) -> None:
    await client.queue.pause(reason="\x1b]0;o\x07[red]")
    try:
        seen = await asyncio.to_thread(run_on_terminal, url, "top", "--once")
    finally:
        await client.queue.resume()

    assert "\x1b]0" not in seen
    assert r"PAUSED by anonymous \x1b]0;o\x07[red]" in seen


async def test_workers_are_told_with_their_slots(
    top: Terminal, client: AsyncClient, workers: Bench, task_type: str
) -> None:
    worker = await workers.register(task_types=[task_type], capacity=7)
    await client.submit(task_type)
    await workers.poll(worker)

    await asyncio.to_thread(top.until, worker)

    row = next(line.split() for line in top.screen if line.startswith(worker))
    assert row[1:4] in (["active", "0", "7"], ["active", "1", "7"])


async def test_what_workers_are_held_back_from_is_shown(
    run: Run, client: AsyncClient, workers: Bench, task_type: str
) -> None:
    worker_id = await held_back_worker(client, workers, task_type)

    frame = (await asyncio.to_thread(run, "top")).stdout.splitlines()

    assert any(line.startswith(worker_id) and f"{task_type} until " in line for line in frame)
    assert any(line.split() == [task_type, "0", "1", "1", "of", "1", "workers", "blocked"] for line in frame)


def test_a_service_that_goes_away_is_waited_for(store: StoreUnderTest, task_type: str, tmp_path: Path) -> None:
    settings, port = environ(store.url, task_type), free_port()
    with at_terminal(f"http://127.0.0.1:{port}", *QUICK) as top:
        top.until("NO ANSWER")
        with serving(settings, tmp_path, port):
            top.until("depth    0")
            top.until("NO ANSWER", is_there=False)
        top.until("NO ANSWER")
        assert top.shows("depth    0")
        with serving(settings, tmp_path, port):
            top.until("NO ANSWER", is_there=False)
        top.type("q")

        assert top.end() == 0
