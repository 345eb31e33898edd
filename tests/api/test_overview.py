"""What people look at: the sorted set as a picture, the last minutes, who did what, who is asking."""

import httpx
import pytest

from tests.api.bench import Bench, Json
from tests.api.replication import Replication
from tests.kit import Kit
from tideq.api.service import Service
from tideq.api.settings import Auth, read_service_settings
from tideq.api.trends import MAX_STEPS, percentile, step_ms
from tideq.queue_core.queue_picture import MAX_LANES, MAX_READY
from tideq.queue_core.settings import SettingsError
from tideq.queue_core.store.audit_log import MAX_NOTES


async def tide(bench: Bench) -> Json:
    return await bench.call("GET", "/api/v1/queue/tide")


def hidden(picture: Json) -> dict[str, float | None]:
    """Hidden tasks, and where the zone they are in ends."""
    return {task["task_id"]: zone["until_seconds"] for zone in picture["zones"] for task in zone["first"]}


async def test_ready_tasks_lie_in_their_lanes_in_the_order_they_will_go(bench: Bench) -> None:
    low = await bench.submit("resize", priority="low")
    high = await bench.submit("resize", priority="high")
    gpu = await bench.submit("train", required_capabilities=["gpu"])

    picture = await tide(bench)

    lanes = {lane["task_type"]: lane for lane in picture["lanes"]}
    assert [task["task_id"] for task in lanes["resize"]["first"]] == [high, low]
    assert [task["priority"] for task in lanes["resize"]["first"]] == ["high", "low"]
    assert lanes["resize"]["first"][1]["queue_score"] == pytest.approx(200_000, abs=60)
    assert lanes["train"]["required_capabilities"] == ["gpu"]
    assert [task["task_id"] for task in lanes["train"]["first"]] == [gpu]
    assert (picture["ready_count"], picture["lane_count"]) == (3, 2)


async def test_hidden_tasks_lie_in_the_zone_of_their_return(bench: Bench) -> None:
    executing = await bench.submit("resize", timeout_seconds=300)
    worker = await bench.register()
    await bench.started(worker)
    soon = await bench.submit("resize", delay_seconds=30)
    far = await bench.submit("resize", delay_seconds=200_000)

    picture = await tide(bench)

    assert hidden(picture) == {soon: 60, executing: 600, far: None}
    statuses = {task["task_id"]: task["status"] for zone in picture["zones"] for task in zone["first"]}
    assert statuses == {soon: "queued", executing: "executing", far: "queued"}
    (lane,) = picture["lanes"]
    assert (lane["task_type"], lane["ready_count"], lane["first"]) == ("resize", 0, [])


async def test_a_claim_takes_a_task_from_the_beach_out_to_sea(bench: Bench) -> None:
    task_id = await bench.submit()
    assert hidden(await tide(bench)) == {}

    await bench.claimed(await bench.register())

    assert hidden(await tide(bench)) == {task_id: 60}


async def test_the_picture_is_cut_off_and_says_how_much_there_is(bench: Bench) -> None:
    tasks = [{"task_type": f"kind{n % (MAX_LANES + 6)}"} for n in range(900)]
    await bench.call("POST", "/api/v1/tasks/batch", {"tasks": tasks})
    await bench.call("POST", "/api/v1/tasks/batch", {"tasks": [{"task_type": "kind0"}] * 300})

    picture = await tide(bench)

    assert picture["ready_count"] == 1200
    assert (picture["lane_count"], len(picture["lanes"])) == (MAX_LANES + 6, MAX_LANES)
    (busiest,) = [lane for lane in picture["lanes"] if lane["task_type"] == "kind0"]
    assert (busiest["ready_count"], len(busiest["first"])) == (330, MAX_READY)


@pytest.mark.parametrize(("window", "width"), [(60, 10_000), (900, 10_000), (901, 20_000), (3_600, 40_000)])
def test_a_step_is_whole_buckets_and_steps_are_few(window: int, width: int) -> None:
    assert step_ms(window) == width
    assert window * 1000 / width <= MAX_STEPS


def test_a_percentile_is_a_value_that_was_seen() -> None:
    assert percentile([], 0.5) is None
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile(range(1, 101), 0.95) == 95


class TestTrends:
    @pytest.fixture
    def has_history(self) -> bool:
        return True

    async def test_outcomes_waits_and_runs_are_those_that_happened(
        self, bench: Bench, kit: Kit, replicated: Replication
    ) -> None:
        worker = await bench.register(capacity=9)
        for waited_ms, ran_ms in ((10_000, 20_000), (20_000, 40_000), (30_000, 60_000)):
            await bench.submit()
            await kit.clock.advance(waited_ms)
            task = await bench.started(worker)
            await kit.clock.advance(ran_ms)
            await bench.tell(worker, "result", task, status="completed", result=1)
        await bench.submit()
        task = await bench.started(worker)
        await bench.tell(worker, "result", task, status="failed", error={"message": "no", "retriable": False})
        await bench.call("GET", "/api/v1/tasks")

        trends = await bench.call("GET", "/api/v1/queue/trends?window_seconds=3600")

        assert trends["step_seconds"] == 40
        assert trends["history_lag_seconds"] is not None
        assert sum(step["completed"] for step in trends["steps"]) == 3
        assert sum(step["failed"] for step in trends["steps"]) == 1
        longest = max(step["run_p95_seconds"] or 0 for step in trends["steps"])
        assert longest == pytest.approx(60, abs=8)
        assert max(step["wait_p95_seconds"] or 0 for step in trends["steps"]) == pytest.approx(30, abs=8)

    async def test_a_wait_longer_than_the_window_counts_when_it_ends(
        self, bench: Bench, kit: Kit, replicated: Replication
    ) -> None:
        worker = await bench.register()
        await bench.submit()
        await kit.clock.advance(600_000)
        await bench.tell(worker := await bench.register(), "result", await bench.started(worker), status="completed")
        await bench.call("GET", "/api/v1/tasks")

        trends = await bench.call("GET", "/api/v1/queue/trends?window_seconds=60")

        assert max(step["wait_p50_seconds"] or 0 for step in trends["steps"]) == pytest.approx(600, abs=60)


async def test_trends_are_told_without_history_too(bench: Bench) -> None:
    trends = await bench.call("GET", "/api/v1/queue/trends")

    assert trends["history_lag_seconds"] is None
    assert {step["wait_p50_seconds"] for step in trends["steps"]} == {None}


class TestAudit:
    @pytest.fixture
    def auth(self) -> Auth:
        return "keys"

    async def test_what_was_done_is_noted_with_whose_key_it_was(
        self, service: Service, http: httpx.AsyncClient
    ) -> None:
        http.headers["Authorization"] = f"Bearer {await service.access_keys.create('ops', 'admin', 0)}"
        await http.post("/api/v1/queue/pause", json={"task_type": "resize", "reason": "upstream is down"})
        await http.put("/api/v1/queue/limits", json={"tasks_per_second": 10})
        await http.post("/api/v1/queue/resume", json={"task_type": "resize"})

        notes = (await http.get("/api/v1/audit")).json()["notes"]

        told = [(note["by"], note["action"], note["target"], note["details"]) for note in notes]
        assert told == [
            ("ops", "resume", "resize", ""),
            ("ops", "limit", "", "10 tasks a second, any number at once"),
            ("ops", "pause", "resize", "upstream is down"),
        ]

    async def test_what_was_refused_is_not_noted(self, service: Service, http: httpx.AsyncClient) -> None:
        http.headers["Authorization"] = f"Bearer {await service.access_keys.create('eve', 'viewer', 0)}"

        refused = await http.post("/api/v1/queue/pause", json={})

        assert refused.status_code == 403
        assert (await http.get("/api/v1/audit")).json()["notes"] == []


async def test_draining_and_purging_are_noted(bench: Bench) -> None:
    worker, task_id = await bench.register(), await bench.submit()
    await bench.call("POST", f"/api/v1/workers/{worker}/drain")
    await bench.call("DELETE", f"/api/v1/tasks/{task_id}")
    await bench.call("DELETE", f"/api/v1/tasks/{task_id}?purge=true")

    notes = (await bench.call("GET", "/api/v1/audit"))["notes"]

    assert [(note["action"], note["target"]) for note in notes] == [("purge", task_id), ("drain", worker)]


async def test_only_the_latest_notes_are_kept(service: Service, bench: Bench, kit: Kit) -> None:
    async with service.client.pipeline(transaction=False) as many:
        for number in range(MAX_NOTES + 5):
            many.xadd(kit.keys.key("audit"), {"note": f'{{"at_ms":0,"by":"ops","action":"pause","target":"{number}"}}'})
        await many.execute()

    await service.audit.note("ops", "resume")

    notes = await service.audit.latest(MAX_NOTES * 2)
    assert len(notes) == MAX_NOTES
    assert [note.action for note in notes[:2]] == ["resume", "pause"]
    assert len((await bench.call("GET", "/api/v1/audit?limit=1000"))["notes"]) == 1000


async def test_who_asks_is_told_and_how_the_service_is_set_up(bench: Bench) -> None:
    told = await bench.call("GET", "/api/v1/whoami")

    assert (told["role"], told["auth_disabled"], told["has_history"]) == ("admin", True, False)
    assert told["priorities"] == ["high", "medium", "low"]


@pytest.mark.parametrize("wrong", ["javascript:alert(1)//{trace_id}", "https://traces.example.org/"])
def test_where_traces_are_shown_must_be_an_address_with_a_place_for_the_trace(wrong: str) -> None:
    right = "https://traces.example.org/trace/{trace_id}"
    assert read_service_settings({"TIDEQ_TRACE_URL_TEMPLATE": right}).trace_url_template == right

    with pytest.raises(SettingsError, match="TIDEQ_TRACE_URL_TEMPLATE"):
        read_service_settings({"TIDEQ_TRACE_URL_TEMPLATE": wrong})
