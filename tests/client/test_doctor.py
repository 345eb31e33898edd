"""`tideq doctor`: a sound installation, and one thing wrong at a time."""

import asyncio
import http.server
import socket
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.api.running import environ, serving, tideq
from tests.client.commands import environ_for
from tests.stores import StoreUnderTest, free_port
from tideq.api.schemas.queue import HealthOut, ReadyOut, StaleDutyOut, StaleElsewhereOut
from tideq.cli.checks import machine, service
from tideq.cli.checks.finding import Finding
from tideq.cli.checks.history import check_lag, check_store_state
from tideq.cli.checks.store import check_clock_offset, check_eviction, check_persistence, check_sync
from tideq.cli.circuits import blocked_types_text
from tideq.cli.doctor import findings
from tideq.cli.session import Service
from tideq.cli.top_view.readings import Snapshot
from tideq.client import BlockedType, Client, Limit, QueueStats, WorkerInfo
from tideq.client.models.queue import Depth, Recovery
from tideq.persistence.recovery.store_guard import StoreCheck
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.store.access_keys import AccessKeys

Statuses = dict[str, list[str]]


def diagnosed(settings: dict[str, str], folder: Path = Path("data")) -> tuple[Statuses, list[Finding]]:
    """Without a process of its own, which takes a second each time."""
    return told(list(findings(folder, Service(), settings)))


def told(found: list[Finding]) -> tuple[Statuses, list[Finding]]:
    statuses: Statuses = {}
    for finding in found:
        statuses.setdefault(finding.check, []).append(finding.status)
    return statuses, found


def by_status(findings: Any) -> list[tuple[str, str]]:
    return [(finding.check, finding.status) for finding in findings]


class TestAgainstRealServers:
    def test_a_sound_installation_has_nothing_but_ok(
        self, url: str, server_settings: dict[str, str], tmp_path: Path
    ) -> None:
        with Client(url) as client:
            waiting = client.queue.stats().queue.by_type

        settings = {**server_settings, "TIDEQ_URL": url}
        done = tideq(settings, "doctor", "-o", "json", "--data-dir", str(tmp_path))
        statuses, found = told(msgspec.json.decode(done.stdout, type=list[Finding]))

        assert done.returncode == 0
        assert set(statuses) >= {
            *("python", "settings", "data folder", "service", "clock", "ready", "key", "port"),
            *("store", "store memory", "store log", "store sync", "store clock", "store scripts", "epoch"),
            *("history", "history clock", "schema", "parked events", "store against history", "replication"),
        }
        # Other tests leave tasks behind that nobody works on, and workers that are held back.
        others = ("workers", "circuits", "dead letters", "port")
        assert {check: each for check, each in statuses.items() if check not in others and each != ["ok"]} == {}, found
        assert statuses["workers"].count("warn") <= len(waiting)

    def test_only_a_url_means_only_the_services_checks(self, url: str) -> None:
        statuses, _ = diagnosed(environ_for(url))

        assert not {"store", "history", "epoch", "port"} & set(statuses)
        assert statuses["service"] == statuses["key"] == ["ok"]

    def test_nobody_there_fails_unless_only_the_store_was_named(self, store: StoreUnderTest) -> None:
        nowhere = environ_for(f"http://127.0.0.1:{free_port()}")
        unnamed = environ(store.url, uuid.uuid4().hex[:12], TIDEQ_PORT=str(free_port()), XDG_CONFIG_HOME="/nowhere")

        assert diagnosed(nowhere)[0]["service"] == ["fail"]
        statuses, found = diagnosed(unnamed)

        # Whoever runs the tests may have a service at the usual place.
        assert statuses["service"] != ["fail"], found
        assert (statuses["store"], statuses["epoch"], statuses["port"]) == (["ok"], ["ok"], ["ok"])

    def test_something_else_at_the_address_is_told(self, other_server: str) -> None:
        statuses, found = diagnosed(environ_for(other_server))

        assert statuses["service"] == ["fail"]
        assert "is not a TideQ service" in next(each.found for each in found if each.check == "service")
        assert "key" not in statuses

    def test_keys_are_told_by_what_they_may(self, store: StoreUnderTest, tmp_path: Path) -> None:
        settings = environ(store.url, uuid.uuid4().hex[:12], TIDEQ_AUTH="keys")
        roles = ("producer", "worker", "viewer", "admin")
        keys = asyncio.run(self.keys(store, settings["TIDEQ_QUEUE"], roles))
        with serving(settings, tmp_path) as running:
            asked = environ_for(running.url)
            found = {role: diagnosed({**asked, "TIDEQ_API_KEY": key}) for role, key in keys.items()}
            without, wrong = diagnosed(asked), diagnosed({**asked, "TIDEQ_API_KEY": keys["viewer"][:-1] + "?"})

        for role, (_, each) in found.items():
            assert self.about_the_key(each) == ("ok", f"has the rights of {'an' if role == 'admin' else 'a'} {role}")
        assert self.about_the_key(without[1]) == ("fail", "the service requires a key, and none is set")
        assert self.about_the_key(wrong[1]) == ("fail", "the key is unknown or revoked")

    async def keys(self, store: StoreUnderTest, queue_name: str, roles: tuple[str, ...]) -> dict[str, str]:
        client = store.client()
        made = AccessKeys(client, Keys(queue_name))
        keys = {role: await made.create(role, role, 0) for role in roles}
        await client.aclose()
        return keys

    def about_the_key(self, found: list[Finding]) -> tuple[str, str]:
        (finding,) = (each for each in found if each.check == "key")
        return finding.status, finding.found

    def test_what_holds_the_queue_up_is_named(self, store: StoreUnderTest, tmp_path: Path) -> None:
        with serving(environ(store.url, uuid.uuid4().hex[:12]), tmp_path) as running:
            with Client(running.url) as client:
                client.submit("resize")
                client.queue.pause("resize", reason="no disk")
            statuses, found = diagnosed(environ_for(running.url))

        assert (statuses["paused"], statuses["workers"]) == (["warn"], ["warn"])
        paused = next(each for each in found if each.check == "paused")
        assert paused.found == "type resize is paused by anonymous no disk"
        assert paused.advice == "resume it with `tideq queue resume resize`"

    def test_stores_that_are_away_or_unprepared_fail(self, url: str, database_url: str) -> None:
        away = environ(f"redis://127.0.0.1:{free_port()}", "away", DATABASE_URL=f"{database_url}_other", TIDEQ_URL=url)
        new = environ("ftp://127.0.0.1", uuid.uuid4().hex[:12], DATABASE_URL=database_url, TIDEQ_URL=url)

        statuses, _ = diagnosed(away)
        assert (statuses["store"], statuses["history"]) == (["fail"], ["fail"])
        statuses, found = diagnosed(new)
        assert (statuses["store"], statuses["history"], statuses["schema"]) == (["fail"], ["ok"], ["fail"])
        assert next(each.advice for each in found if each.check == "schema") == "run `tideq migrate`"

    def test_a_sealed_store_is_closed(self, store: StoreUnderTest, url: str) -> None:
        queue_name = uuid.uuid4().hex[:12]

        async def seal() -> None:
            client = store.client()
            await client.hset(f"tideq:{{{queue_name}:0}}:meta", "epoch", "closed:0123")
            await client.aclose()

        asyncio.run(seal())
        statuses, _ = diagnosed(environ(store.url, queue_name, TIDEQ_URL=url))

        assert statuses["epoch"] == ["fail"]

    def test_people_read_lines_with_advice_below(self, url: str) -> None:
        done = tideq({**environ_for(url), "TIDEQ_PROT": "1"}, "doctor")

        lines = done.stdout.splitlines()
        place = next(number for number, line in enumerate(lines) if line.startswith("fail  settings"))
        assert done.returncode == 1
        assert "did you mean TIDEQ_PORT?" in lines[place]
        assert lines[place + 1].strip().startswith("→ correct or unset it")
        assert "\x1b" not in done.stdout


@pytest.fixture
def other_server() -> Iterator[str]:
    """A web server of somebody else's."""
    yield from answering(http.server.BaseHTTPRequestHandler)


@pytest.fixture
def neglectful() -> Iterator[str]:
    """What a service answers two of whose duties are stale."""
    stale = (StaleDutyOut(duty="prune", seconds=90.2), StaleDutyOut(duty="replication", seconds=31.4))
    elsewhere = (StaleElsewhereOut(duty="sweep", process="monitor-1:7", seconds=62.5),)
    ready = ReadyOut(status="ready", stale_duties=stale, stale_elsewhere=elsewhere)
    answers = {"/livez": HealthOut(status="alive"), "/readyz": ready}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path not in answers:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(msgspec.json.encode(answers[self.path]))

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Nobody reads it."""

    yield from answering(Handler)


def answering(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class TestMachine:
    def test_an_old_python_fails(self) -> None:
        assert machine.check_python((3, 10, 4)).status == "fail"
        assert machine.check_python((3, 12, 0)).status == "ok"

    def test_every_wrong_setting_is_named(self) -> None:
        found = list(machine.check_settings({"TIDEQ_PROT": "1", "TIDEQ_PORT": "x", "TIDEQ_QUEUE": "q"}))

        assert [(each.status, each.found.split("=")[0].split()[0]) for each in found] == [
            ("fail", "TIDEQ_PROT"),
            ("fail", "TIDEQ_PORT"),
        ]

    def test_settings_that_contradict_each_other_are_told(self) -> None:
        (found,) = machine.check_settings({"TIDEQ_AUTH": "off", "TIDEQ_HOST": "10.0.0.1"})

        assert "loopback only" in found.found

    def test_a_data_folder_must_be_writable(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.touch()

        assert machine.check_folder(tmp_path / "a" / "b").status == "ok"
        assert not (tmp_path / "a").exists()
        assert machine.check_folder(file / "data").status == "fail"
        assert machine.check_folder(Path("/proc/tideq")).status == "fail"

    def test_a_port_that_somebody_has_is_told(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]

            assert machine.check_port("127.0.0.1", port, is_ours=False).status == "warn"
            assert machine.check_port("127.0.0.1", port, is_ours=True).status == "ok"
        assert machine.check_port("127.0.0.1", port, is_ours=False).status == "ok"

    def test_a_collector_that_is_away_is_told_where_one_is_wanted(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            here = f"http://127.0.0.1:{listener.getsockname()[1]}"
            wanted = {"OTEL_EXPORTER_OTLP_ENDPOINT": here, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}

            assert [each.status for each in machine.check_telemetry(wanted)] == ["ok", "warn"]
        assert not list(machine.check_telemetry({**wanted, "OTEL_SDK_DISABLED": "true"}))

    def test_a_file_of_keys_that_others_may_read_is_told(self, tmp_path: Path) -> None:
        file = tmp_path / "contexts.json"
        assert not list(machine.check_contexts(file))
        file.touch(0o600)
        assert not list(machine.check_contexts(file))
        file.chmod(0o640)
        assert by_status(machine.check_contexts(file)) == [("contexts", "warn")]


class TestJudgements:
    def test_a_store_that_evicts_fails_where_it_has_a_limit(self) -> None:
        lru = {"maxmemory_policy": "allkeys-lru", "used_memory": 1}
        kept = {"maxmemory_policy": "noeviction", "maxmemory": 100}

        assert check_eviction({**lru, "maxmemory": 100}).status == "fail"
        assert check_eviction({**lru, "maxmemory": 0}).status == "warn"
        assert check_eviction({**kept, "used_memory": 90}).status == "warn"
        assert check_eviction({**kept, "used_memory": 10}).status == "ok"

    def test_a_store_without_a_log_is_a_warning(self) -> None:
        assert (check_persistence({"aof_enabled": 0}).status, check_persistence({"aof_enabled": 1}).status) == (
            "warn",
            "ok",
        )

    def test_a_clock_that_stepped_is_told_with_how_far_the_queue_is_from_it(self) -> None:
        found = [
            check_clock_offset(note)
            for note in ("", "1700000000000 3600000.0 ", "1700000000000 -7200000.0 1700000000000")
        ]

        assert [each.status for each in found] == ["ok", "warn", "warn"]
        assert "3600 s ahead of" in found[1].found
        assert "7200 s behind" in found[2].found

    def test_what_a_kill_and_a_power_cut_cost_is_told_of_every_way_to_sync(self) -> None:
        found = [check_sync(policy, is_synced_by_tideq=False) for policy in ("always", "everysec", "no")]

        assert [each.status for each in found] == ["ok", "ok", "warn"]
        assert "slow" in found[1].found
        assert "a kill loses nothing" in check_sync("no", is_synced_by_tideq=True).found

    def test_verdicts_that_close_the_service_fail(self) -> None:
        failing = {verdict for verdict in StoreCheck if check_store_state(verdict).status == "fail"}

        assert failing == {StoreCheck.STORE_EMPTY, StoreCheck.STORE_BEHIND}

    def test_a_replicator_that_is_behind_is_told(self) -> None:
        assert (check_lag(1).status, check_lag(120).status) == ("ok", "warn")

    def test_a_background_duty_that_is_not_done_is_named_and_is_no_failure(self, neglectful: str) -> None:
        """A service that fails at a duty takes work all the same; one that is of an earlier version names none."""
        with Client(neglectful) as client:
            found = next(each for each in service.check_service(client, is_expected=True) if each.check == "ready")

        assert found.status == "warn"
        assert (
            found.found
            == "accepts work, but these duties are stale: prune (90 s), replication (31 s), sweep on monitor-1:7 (62 s)"
        )
        assert "duty failed" in (found.advice or "")

    def test_clocks_may_be_a_little_apart(self) -> None:
        found = [next(service.check_clock(skew)) for skew in (0.4, -3, 90, -90)]

        assert [each.status for each in found] == ["ok", "ok", "warn", "warn"]
        assert ("ahead of" in found[2].found, "behind" in found[3].found) == (True, True)
        assert not list(service.check_clock(None))

    def test_types_with_active_workers_are_served(self) -> None:
        def worker(status: str, *task_types: str) -> WorkerInfo:
            return WorkerInfo(worker_id="w", status=status, task_types=task_types or None)

        def deserted(*workers: WorkerInfo) -> list[str]:
            reading = self.reading(workers=workers, queue=Depth(total_depth=3, by_type={"a": 1, "b": 2}))
            found = [each.found for each in service.check_snapshot(reading) if each.check == "workers"]
            return [words.split()[4] for words in found if "no active worker" in words]

        assert deserted() == ["a", "b"]
        assert deserted(worker("active", "a")) == ["b"]
        assert deserted(worker("active")) == []
        assert deserted(worker("draining"), worker("dead", "a")) == ["a", "b"]

    def test_workers_that_are_held_back_are_named_with_types_end_and_reason(self) -> None:
        until = datetime(2026, 3, 2, 12, 0, 5, tzinfo=UTC)
        circuits = (
            BlockedType(task_type="resize", until=until, reason="they failed"),
            BlockedType(reason="they decide"),
        )
        shut = WorkerInfo(worker_id="mill-1", status="active", blocked_types=circuits)
        dead = WorkerInfo(worker_id="mill-2", status="dead", blocked_types=circuits)

        findings = list(service.check_snapshot(self.reading(workers=(shut, dead))))

        assert [(each.check, each.found) for each in findings if each.status == "warn"] == [
            (
                "circuits",
                "mill-1 is blocked from resize until 12:00:05Z, all types on trial: they failed; they decide",
            )
        ]

    def test_of_many_types_a_worker_is_held_back_from_three_are_named(self) -> None:
        circuits = tuple(BlockedType(task_type=f"t{number}", reason="they decide") for number in range(50))

        words = blocked_types_text(WorkerInfo(worker_id="mill-1", status="active", blocked_types=circuits))

        assert words == "t0 on trial, t1 on trial, t2 on trial, and 47 more"

    def test_backlogs_are_told(self) -> None:
        reading = self.reading(
            queue=Depth(total_depth=1, oldest_age_seconds=8_000),
            dead_letters=3,
            due=1_000,
            outbox_length=200_000,
            recovery_stats=Recovery(),
        )

        assert by_status(service.check_snapshot(reading)) == [
            ("workers", "ok"),
            ("age", "warn"),
            ("recovery", "warn"),
            ("outbox", "warn"),
            ("dead letters", "warn"),
        ]
        assert by_status(service.check_snapshot(self.reading())) == [("workers", "ok"), ("age", "ok")]

    def reading(self, workers: tuple[WorkerInfo, ...] = (), limits: tuple[Limit, ...] = (), **stats: Any) -> Snapshot:
        at = datetime.now(UTC) - timedelta(seconds=1)
        return Snapshot(at=at, stats=QueueStats(**stats), workers=workers, limits=limits)
