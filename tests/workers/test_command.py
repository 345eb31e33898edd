"""`tideq worker` as a command: what it says when it cannot work, how it reloads, whose modules it imports."""

import os
import signal
import time

import httpx
import pytest

from tests.api.bench import Bench
from tests.api.running import Running
from tests.kit import Kit
from tests.stores import free_port
from tests.workers.waiting import done, registrations, until
from tests.workers.workshop import Workshop

CHECKS = {
    "memory_usage_percent",
    "cpu_usage_percent",
    "event_loop_lag_seconds",
    "stuck_threads",
    "failed_heartbeats",
    "tasks_held",
    "unsent_reports",
    "registered",
}
ONE_HANDLER = """
from tideq.workers.runtime.handlers import Handler
from tideq.workers.runtime.registry import registered

def answer() -> str:
    return {text}

registered.add(Handler("answer", answer))
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--handlers", "nowhere"), "module 'nowhere' was not found"),
        (("--handlers", "ledgered.deeper"), "module 'ledgered.deeper' was not found"),
        (("--handlers", "empty"), "no handler in 'empty'"),
        (("--handlers", "ledgered", "--url", "localhost:8080"), "--url localhost:8080"),
        (("--handlers", "ledgered", "--concurrency", "0"), "--concurrency 0"),
    ],
)
def test_what_keeps_it_from_working_is_said_in_one_line(shop: Workshop, arguments: tuple[str, ...], words: str) -> None:
    (shop.folder / "empty.py").touch()

    ended = shop.run(*arguments)

    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert words in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_health_port_in_use_is_said_in_one_line(service: Running, shop: Workshop) -> None:
    ended = shop.run("--handlers", "ledgered", "--url", service.url, "--health-port", str(service.port))

    assert ended.returncode == 1
    assert f"error: no health page on 127.0.0.1 port {service.port}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_name_the_service_never_takes_is_said_in_one_line(service: Running, shop: Workshop) -> None:
    ended = shop.run("--handlers", "ledgered", "--url", service.url, "--name", "not a name")

    assert ended.returncode == 1
    assert "error: the service refused to register this worker" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_module_that_is_there_but_broken_shows_where(shop: Workshop) -> None:
    (shop.folder / "ledgered_too.py").write_text("import ledgered_t\n")

    ended = shop.run("--handlers", "ledgered_too")

    assert ended.returncode == 1
    assert "import ledgered_t" in ended.stderr
    assert "error: module" not in ended.stderr


async def test_health_names_every_check(service: Running, bench: Bench, shop: Workshop) -> None:
    port = free_port()
    shop.hire(service.url, "--health-port", str(port))

    async def is_well() -> bool:
        return await _status(port) == 200

    await until(is_well)

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        page, elsewhere = await http.get("/health"), await http.get("/")

    assert (page.status_code, page.json()["status"]) == (200, "healthy")
    assert set(page.json()["checks"]) == CHECKS
    assert all(check["ok"] for check in page.json()["checks"].values())
    assert elsewhere.status_code == 404


async def test_health_says_when_the_service_does_not_answer(shop: Workshop, own_service: Running) -> None:
    port = free_port()
    hand = shop.hire(own_service.url, "--health-port", str(port))
    await until(lambda: hand.events("worker registered"))

    own_service.process.kill()

    async def is_unwell() -> bool:
        return await _status(port) == 503

    await until(is_unwell)

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        checks = (await http.get("/health")).json()["checks"]
    assert [name for name, check in checks.items() if not check["ok"]] == ["failed_heartbeats"]


async def _status(port: int) -> int:
    """0 while nobody listens."""
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            return (await http.get("/health")).status_code
    except httpx.TransportError:
        return 0


async def test_a_changed_file_starts_it_anew_and_a_signal_ends_both(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    source = shop.folder / "changing.py"
    source.write_text(ONE_HANDLER.format(text="'before'"))
    hand = shop.hire(service.url, "--reload", handlers="changing")
    before = await done(bench, "answer")

    source.write_text(ONE_HANDLER.format(text="'after'"))
    os.utime(source, (time.time() + 5, time.time() + 5))
    await until(lambda: len(hand.events("worker registered")) == 2)
    after = await done(bench, "answer")
    source.write_text("broken(")
    await until(lambda: "SyntaxError" in hand.said())
    source.write_text(ONE_HANDLER.format(text="'mended'"))
    mended = await done(bench, "answer")
    hand.signal(signal.SIGTERM)
    status = hand.ended()

    assert [task["result"] for task in (before, after, mended)] == ["before", "after", "mended"]
    assert status == 0
    assert await registrations(bench, hand) == []


APPLICATION = {
    "api.py": "WHO = 'the application'\n",
    "workers.py": "import api\n\ndef who() -> str:\n    return api.WHO\n",
    "persistence/__init__.py": "from persistence.models import WHAT\n",
    "persistence/models.py": "WHAT = 'its own models'\n",
    "queue_core.py": "WHERE = 'here'\n",
    "tasks.py": """
import api, persistence, queue_core, workers
from tideq.workers.runtime.handlers import Handler
from tideq.workers.runtime.registry import registered

def introduce() -> list[str]:
    return [workers.who(), persistence.WHAT, queue_core.WHERE, api.__file__]

registered.add(Handler("introduce", introduce))
registered.add(Handler("introduce_in_process", introduce, in_process=True))
""",
}


async def test_an_application_with_modules_named_like_ours_does_not_clash(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    for name, text in APPLICATION.items():
        path = shop.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    shop.hire(service.url, handlers="tasks")

    tasks = [await done(bench, kind) for kind in ("introduce", "introduce_in_process")]

    mine = str(shop.folder / "api.py")
    assert [task["result"] for task in tasks] == [["the application", "its own models", "here", mine]] * 2
