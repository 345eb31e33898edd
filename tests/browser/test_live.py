"""The page follows the queue by itself: numbers move, a task goes through its states, nothing is reloaded."""

import re

import msgspec
from playwright.async_api import Route, expect

from tests.browser.eyes import Eyes
from tests.browser.stage import CIRCUIT_FAILURES, Stage
from tideq.api.schemas.queue import ReadyOut, StaleDutyOut


async def test_the_overview_moves_while_work_is_done(eyes: Eyes, stage: Stage) -> None:
    await eyes.open("/")
    await expect(eyes.page.get_by_role("status").filter(has_text="live")).to_be_visible()
    before = int((await eyes.tile("Done a minute")).replace(",", ""))

    stage.submit_many("hello", 40)

    value = eyes.page.locator(".tile", has_text="Done a minute").locator(".tile-value")
    await expect(value).to_have_text(str(before + 40))
    await eyes.assert_not_reloaded()


async def test_a_worker_that_is_held_back_is_shown_with_type_end_and_reason(eyes: Eyes, stage: Stage) -> None:
    name = {"name": "mill", "task_types": ["grind"], "capacity": CIRCUIT_FAILURES}
    worker_id = stage.call("POST", "/internal/workers/register", name)["worker_id"]
    worker = f"/internal/workers/{worker_id}"
    stage.submit_many("grind", CIRCUIT_FAILURES, max_retries=0)
    asked = {"available_capacity": CIRCUIT_FAILURES, "poll_id": "p1", "start_claimed": True}
    error = {"message": "stuck", "retriable": True}
    tasks = stage.call("POST", f"{worker}/poll", asked)["tasks"]
    held = [{"task_id": each["task_id"], "lease": each["lease"]} for each in tasks]
    stage.call("POST", f"{worker}/sync", {"results": [{**each, "status": "failed", "error": error} for each in held]})
    words = re.compile(r"no tasks of grind, tried again in \d+ s: most of its latest tasks of this type failed")

    await eyes.open("/")
    row = eyes.page.get_by_label("Held back for failing").get_by_role("listitem").filter(has_text=worker_id)
    await expect(row).to_have_text(words)
    await eyes.open("/ui/workers")
    card = eyes.page.locator(".worker", has_text=worker_id)

    await expect(card.get_by_label("Held back from").get_by_role("listitem")).to_have_text(words)
    await expect(card.locator(".badge")).to_have_text("held back")
    assert await eyes.serious_problems() == []
    stage.call("DELETE", worker)


async def test_a_worker_is_shown_with_why_it_gets_no_work_and_what_it_works_on(eyes: Eyes, stage: Stage) -> None:
    worker_id = stage.call("POST", "/internal/workers/register", {"name": "loom", "task_types": ["weave"]})["worker_id"]
    worker, task_id = f"/internal/workers/{worker_id}", stage.submit("weave", {})
    stage.call("POST", f"{worker}/poll", {"poll_id": "p1", "start_claimed": True})
    stage.call("POST", f"{worker}/heartbeat", {"status": "unhealthy", "current_load": 1})

    await eyes.open("/ui/workers?status=unhealthy")
    card = eyes.page.locator(".worker", has_text=worker_id)

    await expect(card.locator(".status")).to_have_text("unhealthy")
    await expect(card.locator(".why")).to_have_text(re.compile(r"its heartbeat reported \w+: .* \(.*\)"))
    await expect(card).to_contain_text("works on")
    assert await eyes.serious_problems() == []
    await eyes.screenshot("worker-unhealthy")
    stage.call("POST", f"{worker}/heartbeat", {"status": "active"})
    await eyes.open("/ui/workers")
    await expect(card.locator(".status")).to_have_text("active")
    await expect(card.locator(".why")).to_have_count(0)
    await card.get_by_label("Current tasks").get_by_role("link").click()
    await expect(eyes.page).to_have_url(re.compile(f"/ui/tasks/{task_id}"))
    stage.call("DELETE", worker)
    stage.call("DELETE", f"/api/v1/tasks/{task_id}")


async def test_a_background_duty_that_fails_is_named_while_it_does(eyes: Eyes) -> None:
    """The service's own words in its answer: `/readyz` of one with such a duty is tried in tests/history."""
    stale = [StaleDutyOut(duty="replication", seconds=72.4)]

    async def answer(route: Route) -> None:
        told = ReadyOut(status="ready", stale_duties=tuple(stale))
        await route.fulfill(body=msgspec.json.encode(told), content_type="application/json")

    await eyes.page.route("**/readyz", answer)
    await eyes.open("/")
    banner = eyes.page.get_by_role("alert")
    await expect(banner).to_have_text(re.compile(r"background duties fail: replication \(not done for 1 min 12 s\)"))
    await eyes.screenshot("stale-duty-light")
    assert await eyes.serious_problems() == []

    stale.clear()
    await eyes.open("/")
    await expect(eyes.page.locator(".tile-value").first).to_be_visible()
    await expect(banner).to_have_count(0)


async def test_a_task_goes_through_its_states_on_screen(eyes: Eyes, stage: Stage) -> None:
    stage.call("POST", "/api/v1/queue/pause", {"task_type": "slow", "reason": "a look at it waiting"})
    task_id = stage.submit("slow", {"until": "one"}, tags={"scene": "states"})
    await eyes.open(f"/ui/tasks/{task_id}")
    state = eyes.page.locator("h1 .status")
    await expect(state).to_have_text("queued")
    await expect(eyes.page.locator(".held")).to_contain_text("paused")

    stage.call("POST", "/api/v1/queue/resume", {"task_type": "slow"})
    await expect(state).to_have_text("executing")
    await eyes.see("waiting for a sign")
    (stage.folder / "one").touch()

    await expect(state).to_have_text("completed")
    await expect(eyes.page.get_by_label("Result", exact=True).locator("pre")).to_have_text('"seen"')
    await expect(eyes.page.locator(".timeline-words").first).to_contain_text(re.compile("executing .* → completed"))
    await eyes.assert_not_reloaded()


async def test_the_tide_takes_a_claimed_task_out_and_shows_where_it_is(eyes: Eyes, stage: Stage) -> None:
    stage.call("POST", "/api/v1/queue/pause", {"task_type": "slow"})
    task_id = stage.submit("slow", {"until": "two"}, priority="high")
    await eyes.open("/ui/")
    dot = eyes.page.locator("circle", has=eyes.page.locator(f"title:text('{task_id}')"))
    await expect(dot).to_have_class("dot ready high")

    stage.call("POST", "/api/v1/queue/resume", {"task_type": "slow"})
    await expect(dot).to_have_class("dot executing")
    (stage.folder / "two").touch()

    await expect(dot).to_have_count(0)
    await eyes.assert_not_reloaded()


async def test_a_hidden_tab_hears_nothing_and_catches_up_when_it_is_looked_at(eyes: Eyes, stage: Stage) -> None:
    await eyes.open("/ui/tasks?q=tag.scene:hidden")
    light = eyes.page.locator(".live")
    await expect(light).to_have_text("live")

    await eyes.page.evaluate(_show(False))
    await expect(light).to_have_text("paused")
    stage.submit("hello", {}, tags={"scene": "hidden"})
    await eyes.page.evaluate(_show(True))

    await expect(light).to_have_text("live")
    await expect(eyes.page.locator("tbody tr")).to_have_count(1)


async def test_without_a_stream_the_page_asks_now_and_then(eyes: Eyes, stage: Stage) -> None:
    eyes.allow("Failed to load resource: net::ERR_FAILED")
    await eyes.page.route("**/api/v1/events*", lambda route: route.abort())
    await eyes.open("/ui/tasks?q=tag.scene:polling")
    await expect(eyes.page.locator(".live")).to_have_text("asking every few seconds")

    stage.submit("hello", {}, tags={"scene": "polling"})

    await expect(eyes.page.locator("tbody tr")).to_have_count(1)


def _show(is_shown: bool) -> str:
    hidden = "false" if is_shown else "true"
    return (
        f"Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )


async def test_the_overview_shows_how_many_ended_and_how_of_each_type(eyes: Eyes, stage: Stage) -> None:
    await eyes.open("/")
    completed, failed = [int((await eyes.tile(name)).replace(",", "")) for name in ("Completed", "Failed")]

    stage.submit_many("hello", 7)
    task_id = stage.submit("nobody-serves-it")
    stage.call("DELETE", f"/api/v1/tasks/{task_id}")

    value = eyes.page.locator(".tile", has=eyes.page.get_by_text("Completed", exact=True)).locator(".tile-value")
    await expect(value).to_have_text(f"{completed + 7:,}")
    assert int((await eyes.tile("Failed")).replace(",", "")) == failed
    rows = eyes.page.locator(".bars.stacked li")
    gone = rows.filter(has_text="nobody-serves-it").get_by_role("link", name="nobody-serves-it: 1 cancelled")
    await expect(gone).to_be_visible()
    await expect(
        rows.filter(has_text="hello").get_by_role("link", name=re.compile(r"hello: [\d,]+ completed"))
    ).to_be_visible()
    await gone.click()
    await expect(eyes.page).to_have_url(re.compile("status%3Acancelled.type%3Anobody-serves-it"))
