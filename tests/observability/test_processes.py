"""Metrics of real processes: one scrape tells of all behind a port; monitor and replicator have ports of their own."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.api.bench import until
from tests.api.running import START_SECONDS, TIDEQ, environ, serving, tideq
from tests.observability.scrape import PATH, Scrape
from tests.stores import StoreUnderTest, free_port

PROCESSES = 3
TASKS = 30


async def test_one_scrape_tells_of_every_process_behind_the_port(store: StoreUnderTest, tmp_path: Path) -> None:
    settings = environ(store.url, uuid.uuid4().hex[:12])
    with serving(settings, tmp_path, 0, "--processes", str(PROCESSES)) as running:
        for _ in range(TASKS):
            _submit(running.url)

        told = [_scraped(running.url) for _ in range(4)]
        submitted = [scrape.values("tideq_tasks_submitted_total", "process") for scrape in told]

        assert [len(each) for each in submitted] == [PROCESSES] * 4
        assert [sum(each.values()) for each in submitted] == [TASKS] * 4
        assert set(told[0].values("tideq_process_resident_memory_bytes", "process")) == set(submitted[0])

        victim = next(iter(submitted[0]))
        os.kill(int(victim), signal.SIGKILL)

        async def is_replaced() -> bool:
            seen = _scraped(running.url).values("tideq_tasks_submitted_total", "process")
            return victim not in seen and len(seen) == PROCESSES

        await until(is_replaced)


def test_monitor_and_replicator_tell_what_they_count(store: StoreUnderTest, database_url: str, tmp_path: Path) -> None:
    settings = environ(store.url, uuid.uuid4().hex[:12], DATABASE_URL=database_url)
    assert tideq(settings, "migrate").returncode == 0
    with (
        told_by(settings, tmp_path, "monitor", "tideq_journal_gaps_total", "tideq_worker_probes_total") as monitor,
        told_by(settings, tmp_path, "replicate", "tideq_replicated_events_total") as replicator,
    ):
        assert monitor.value("tideq_worker_probes_total", outcome="failed") == 0
        assert monitor.value("tideq_journal_gaps_total") == 0
        assert replicator.value("tideq_replicated_events_total") == 0
        assert {"tideq_process_cpu_seconds_total"} <= monitor.names & replicator.names
        assert set(monitor.labels("queue")) == {settings["TIDEQ_QUEUE"]}


def _submit(url: str) -> None:
    """Over a connection of its own, so that any process may get it."""
    httpx.post(f"{url}/api/v1/tasks", json={"task_type": "resize"}).raise_for_status()


def _scraped(url: str) -> Scrape:
    return Scrape(httpx.get(url + PATH).text)


@contextmanager
def told_by(settings: dict[str, str], folder: Path, command: str, *names: str) -> Generator[Scrape]:
    port, log = free_port(), folder / f"{command}.log"
    with log.open("w") as said:
        words = [TIDEQ, command, "--health-port", str(port)]
        process = subprocess.Popen(words, env=settings, stdout=said, stderr=subprocess.STDOUT)
    try:
        yield _first(f"http://127.0.0.1:{port}{PATH}", set(names), process, log)
    finally:
        process.kill()
        process.wait()


def _first(url: str, names: set[str], process: "subprocess.Popen[bytes]", log: Path) -> Scrape:
    """The first answer that has these: the page is there before the stores are, and before all that count."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            told = Scrape(httpx.get(url).text)
        except httpx.ConnectError:
            told = None
        if told is not None and names <= told.names:
            return told
        time.sleep(0.05)
