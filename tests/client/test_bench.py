"""`tideq bench` against real services, with as few tasks as show it."""

import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.running import START_SECONDS, TIDEQ, environ, serving
from tests.client.commands import Run as RunCommand
from tests.client.commands import environ_for, runner
from tests.client.services import command_done
from tests.client.terminals import at_terminal
from tests.stores import StoreUnderTest, free_port
from tideq.cli.benchmark.benched_service import PREFIX
from tideq.cli.benchmark.figures import Run, read_run, show_run
from tideq.client import Client, QueueStats

TINY = ("--tasks", "40", "--rate", "40", "--seconds", "0.5", "--connections", "4", "--batch", "10")
SWEEPS = ("--depth", "50,0.1k", "--payload", "0.1k,2k", "--worker-counts", "1,2")
ENDLESS = ("--measure", "enqueue", "--tasks", "4M", "--connections", "2", "--yes")
FIGURES = [
    *("enqueue.single", "enqueue.batch", "process", "latency.submit", "latency.pickup", "latency.round_trip"),
    *("depth.enqueue.50", "depth.process.50", "depth.enqueue.100", "depth.process.100"),
    *("payload.enqueue.100", "payload.process.100", "payload.enqueue.2000", "payload.process.2000"),
    *("workers.1", "workers.2"),
]


@pytest.fixture(scope="module")
def limited(running_stores: Callable[[str], StoreUnderTest], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a queue that takes little."""
    limits = {"TIDEQ_DEPTH_REFUSE_LOW": "60", "TIDEQ_DEPTH_REFUSE_MEDIUM": "60", "TIDEQ_MAX_PAYLOAD_BYTES": "1024"}
    settings = environ(running_stores("valkey").url, uuid.uuid4().hex[:12], **limits)
    with serving(settings, tmp_path_factory.mktemp("limited")) as running:
        yield running.url


@pytest.fixture
def quiet(limited: str) -> Iterator[str]:
    """It, with nothing waiting, as the test must leave it."""
    yield limited
    with Client(limited) as client:
        assert waiting(client.queue.stats()) == {}
        assert not working_types(client)


def waiting(stats: QueueStats) -> dict[str, int]:
    return {name: count for name, count in stats.queue.by_type.items() if count}


def working_types(client: Client) -> set[str]:
    """Of benchmarks whose workers have not left."""
    active = client.workers.list(["active", "draining"])
    return {name for worker in active for name in worker.task_types or () if name.startswith(PREFIX)}


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def underway(url: str) -> Generator[subprocess.Popen[str]]:
    """A run that would not end by itself, once its first tasks wait."""
    process = subprocess.Popen(
        [TIDEQ, "bench", *ENDLESS], env=environ_for(url), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        with Client(url) as client:
            until(lambda: process.poll() is not None or any(map(_is_ours, client.queue.stats().queue.by_type)))
        yield process
    finally:
        process.kill()
        process.communicate()


def _is_ours(task_type: str) -> bool:
    return task_type.startswith(PREFIX)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def before(url: str) -> dict[str, int]:
    with Client(url) as client:
        return waiting(client.queue.stats())


@pytest.fixture(scope="module")
def done(url: str, files: Path, before: dict[str, int]) -> subprocess.CompletedProcess[str]:
    done = runner(url)("bench", *TINY, *SWEEPS, "--json", str(files / "run.json"), "--yes")
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def run(done: subprocess.CompletedProcess[str], files: Path) -> Run:
    return read_run(files / "run.json")


class TestARun:
    def test_every_task_it_handed_in_was_done(self, run: Run) -> None:
        assert run.submitted == run.processed > 0
        assert run.left == 0

    def test_its_figures_are_those_that_were_asked_for(self, run: Run) -> None:
        assert [figure.name for figure in run.figures] == FIGURES
        assert all(figure.per_second or figure.times for figure in run.figures)
        assert all(figure.seconds > 0 and figure.tasks > 0 for figure in run.figures)
        by_name = {figure.name: figure for figure in run.figures}
        assert (by_name["enqueue.single"].tasks, by_name["enqueue.batch"].tasks) == (10, 40)
        assert by_name["process"].tasks == 50
        assert by_name["payload.enqueue.2000"].payload_bytes == 2_000

    def test_times_grow_with_the_share_they_are_of(self, run: Run) -> None:
        for figure in run.figures:
            curve = [value for _, value in figure.times.curve] if figure.times else []
            assert curve == sorted(curve)

    def test_nothing_of_it_is_left(self, url: str, run: Run, before: dict[str, int]) -> None:
        with Client(url) as client:
            assert waiting(client.queue.stats()) == before
            until(lambda: not list(client.list(task_type=run.task_type)))
            assert not working_types(client)
            assert run.task_type not in [limit.task_type for limit in client.queue.limits()]

    def test_the_table_has_a_line_for_each_figure_and_the_totals(
        self, run: Run, done: subprocess.CompletedProcess[str]
    ) -> None:
        assert all(f"  {figure.title} " in done.stdout for figure in run.figures)
        assert f"{run.submitted:,} tasks were submitted, {run.processed:,} completed; 0 are left." in done.stdout
        assert "share this machine" in done.stdout
        assert done.stderr == ""

    def test_it_can_be_compared_with_itself(self, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
        show_run(run, run, "table")

        shown = capsys.readouterr().out
        assert f"Compared with {run.at}: 1.00 × as good" in shown
        assert shown.count(" 1.00\n") == len(FIGURES)


class TestBeingInterrupted:
    def test_it_ends_with_130_and_leaves_nothing(self, url: str) -> None:
        with underway(url) as process, Client(url) as client:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=200)

            assert (process.returncode, "Traceback" in said) == (130, False), said
            assert "removing the run's tasks" in said
            assert not [name for name in waiting(client.queue.stats()) if _is_ours(name)]
            assert not working_types(client)

    def test_killed_its_processes_end_and_the_next_one_cleans_up(self, url: str) -> None:
        with underway(url) as process, Client(url) as client:
            process.kill()
            process.wait()
            until(lambda: not working_types(client))

            done = runner(url)("bench", "--clean")

            assert (done.returncode, done.stderr) == (0, "removed the tasks of 1 runs\n")
            assert not [name for name in waiting(client.queue.stats()) if _is_ours(name)]

    def test_a_service_that_goes_away_is_5_and_what_is_left_is_told(
        self, store: StoreUnderTest, task_type: str, tmp_path: Path
    ) -> None:
        with serving(environ(store.url, task_type), tmp_path) as running, underway(running.url) as process:
            running.process.kill()
            _, said = process.communicate(timeout=200)

        assert (process.returncode, "Traceback" in said) == (5, False), said
        assert "`tideq bench --clean` removes it" in said


class TestLimits:
    def test_a_sweep_goes_as_far_as_the_service_lets_it(self, quiet: str, tmp_path: Path) -> None:
        measured = ("--measure", "depth,payload", "--depth", "40,200", "--payload", "0.1k,2k")

        done = runner(quiet)("bench", *TINY, *measured, "--json", str(tmp_path / "run.json"))

        assert done.returncode == 0, done.stderr
        run = read_run(tmp_path / "run.json")
        assert [figure.x for figure in run.figures] == [40, 40, 100, 100]
        assert (run.submitted, run.left) == (run.processed, 0)
        assert "beyond 60 (TIDEQ_DEPTH_REFUSE_MEDIUM)" in done.stdout
        assert "no payloads of 2,000 bytes" in done.stdout

    def test_a_refusal_ends_anything_else_and_is_cleaned_up_after(self, quiet: str) -> None:
        done = runner(quiet)("bench", "--measure", "enqueue", "--tasks", "400", "--batch", "10")

        assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (1, "", False)
        assert done.stderr.startswith("error: ")


class TestBeingInTheWay:
    def test_a_queue_with_other_work_is_left_alone_unless_told(self, quiet: str, task_type: str) -> None:
        with Client(quiet) as client:
            task_id = client.submit(task_type).task_id

            refused = runner(quiet)("bench", *TINY, "--measure", "process")
            wanted = runner(quiet)("bench", *TINY, "--measure", "process", "--yes")

            assert (refused.returncode, refused.stdout, wanted.returncode) == (1, "", 0)
            assert "has 1 other tasks" in refused.stderr
            assert waiting(client.queue.stats()) == {task_type: 1}
            client.cancel(task_id)

    def test_at_a_terminal_it_asks_and_shows_how_far_it_is(self, quiet: str, task_type: str) -> None:
        with Client(quiet) as client:
            task_id = client.submit(task_type).task_id
            with at_terminal(quiet, "bench", *TINY, "--measure", "enqueue") as terminal:
                terminal.until("Run the benchmark anyway? [y/N]")
                terminal.type("y\n")
                code = terminal.end()
            client.cancel(task_id)

        assert code == 0

        assert "one by one, 4 connections" in terminal.seen
        assert "40/40" in terminal.seen

    def test_a_paused_queue_is_told_of(self, quiet: str) -> None:
        with Client(quiet) as client:
            client.queue.pause()
            done = runner(quiet)("bench", *TINY)
            client.queue.resume()

        assert done.returncode == 1
        assert done.stderr == "error: the queue is paused; resume it with `tideq queue resume`\n"


class TestEndings:
    def test_a_key_that_is_no_admins_is_4(self, store: StoreUnderTest, task_type: str, tmp_path: Path) -> None:
        settings = environ(store.url, task_type, TIDEQ_AUTH="keys")
        key = command_done(settings, "keys", "create", "eve", "--role", "producer")
        with serving(settings, tmp_path) as running:
            nobody, producer = runner(running.url)("bench"), runner(running.url, TIDEQ_API_KEY=key)("bench")

        assert (nobody.returncode, producer.returncode) == (4, 4)
        assert "this key has the role producer; a benchmark needs the role admin" in producer.stderr

    def test_nobody_there_is_5_and_one_can_be_started(self) -> None:
        done = runner(f"http://127.0.0.1:{free_port()}")("bench")

        assert (done.returncode, done.stdout) == (5, "")
        assert "`tideq bench --up` starts a service for the run" in done.stderr

    @pytest.mark.parametrize(
        "wrong",
        [("--measure", "speed"), ("--tasks", "many"), ("--batch", "5000"), ("--compare", "nowhere.json")],
        ids=lambda wrong: wrong[0],
    )
    def test_asking_wrongly_is_2_before_anything_is_done(self, url: str, wrong: tuple[str, str]) -> None:
        done = runner(url)("bench", *wrong)

        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)

    def test_a_folder_that_is_not_there_is_2(self, url: str, tmp_path: Path) -> None:
        assert runner(url)("bench", "--json", str(tmp_path / "nowhere" / "run.json")).returncode == 2


def test_a_service_of_its_own_goes_with_its_data(tmp_path: Path) -> None:
    run: RunCommand = runner(f"http://127.0.0.1:{free_port()}", TMPDIR=str(tmp_path))

    done = run("bench", *TINY, "--up", "--measure", "process", "-o", "json")

    assert done.returncode == 0, done.stderr
    assert '"submitted": 40' in done.stdout
    assert list(tmp_path.iterdir()) == []
