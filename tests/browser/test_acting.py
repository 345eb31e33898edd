"""Dead letters sent back, the queue paused and limited, workers drained, finished tasks cleaned up."""

import re

from playwright.async_api import expect

from tests.browser.eyes import Eyes
from tests.browser.stage import Stage


async def test_a_pattern_of_dead_letters_is_replayed(eyes: Eyes, stage: Stage) -> None:
    stage.submit_many("flaky", 12, max_retries=0)
    stage.wait(lambda: stage.count(task_type="flaky", status="dead_letter") == 12, "all are dead")
    (stage.folder / "calm").touch()
    await eyes.open("/ui/dead-letters")
    group = eyes.page.locator(".pattern", has_text="flaky")
    await expect(group.locator(".pattern-count")).to_have_text("12")
    await expect(group).to_contain_text("new")

    await group.get_by_role("button", name="Tasks").click()
    await expect(group.locator("tbody tr")).to_have_count(12)
    await group.get_by_role("button", name="Replay…").click()
    await eyes.see("12 dead letters will go back.")
    await eyes.button("Replay 12").click()

    await expect(eyes.page.get_by_role("dialog").get_by_role("status")).to_have_text("Finished. Replayed 12.")
    await eyes.button("Close").click()
    await expect(group).to_have_count(0)
    stage.wait(lambda: stage.count(task_type="flaky", status="completed") == 12, "all were done")


async def test_dead_letters_are_replayed_by_filter_at_a_rate(eyes: Eyes, stage: Stage) -> None:
    (stage.folder / "calm").unlink(missing_ok=True)
    stage.submit_many("flaky", 4, max_retries=0, tags={"scene": "rate"})
    stage.wait(lambda: stage.count(tag="scene:rate", status="dead_letter") == 4, "all are dead")
    (stage.folder / "calm").touch()
    await eyes.open("/ui/dead-letters")

    await eyes.button("Replay by filter…").click()
    await eyes.page.get_by_role("combobox", name="Type", exact=True).select_option("flaky")
    await eyes.page.get_by_label("At most so many a second").fill("20")
    await eyes.see("4 dead letters will go back.")
    await eyes.button("Replay 4").click()

    await expect(eyes.page.get_by_role("dialog").get_by_role("status")).to_have_text("Finished. Replayed 4.")


async def test_a_pause_shows_its_badge_and_stops_claims(eyes: Eyes, stage: Stage) -> None:
    await eyes.open("/ui/controls")
    form = eyes.page.get_by_label("Pause", exact=True)
    await form.get_by_label("Task type").fill("hello")
    await form.get_by_label("Reason").fill("the printer burns")
    await form.get_by_role("button", name="Pause hello").click()

    badge = eyes.page.get_by_role("alert").filter(has_text="Paused: hello")
    await expect(badge).to_contain_text("the printer burns")
    held = stage.submit("hello", {}, tags={"scene": "pause"})
    other = stage.submit("slow", {"until": "data"})
    stage.wait(lambda: stage.call("GET", f"/api/v1/tasks/{other}")["status"] == "completed", "others go on")
    assert stage.call("GET", f"/api/v1/tasks/{held}")["status"] == "queued"
    await eyes.page.keyboard.press("Escape")
    await eyes.page.get_by_role("link", name="Workers").click()
    await expect(badge).to_be_visible()

    await badge.get_by_role("link", name="Controls").click()
    await eyes.button("Resume").click()
    await expect(badge).to_have_count(0)
    stage.wait(lambda: stage.call("GET", f"/api/v1/tasks/{held}")["status"] == "completed", "it was let out")
    notes = eyes.page.get_by_label("Who did what").locator("tbody tr")
    await expect(notes.nth(0)).to_contain_text("resume")
    await expect(notes.nth(1)).to_contain_text("the printer burns")


async def test_a_pause_needs_no_reason(eyes: Eyes, stage: Stage) -> None:
    await eyes.open("/ui/controls")
    form = eyes.page.get_by_label("Pause", exact=True)
    await form.get_by_label("Task type").fill("printing")

    await form.get_by_role("button", name="Pause printing").click()

    row = eyes.page.locator(".in-force li", has_text="printing")
    await expect(row).to_contain_text("paused")
    await row.get_by_role("button", name="Resume").click()
    await expect(row).to_have_count(0)


async def test_a_limit_is_set_and_lifted(eyes: Eyes, stage: Stage) -> None:
    await eyes.open("/ui/controls")
    form = eyes.page.get_by_label("Limit", exact=True)
    await form.get_by_label("Task type").fill("printing")
    await form.get_by_label("Tasks a second").fill("2.5")
    await form.get_by_label("Most at once").fill("3")
    await form.get_by_role("button", name="Limit printing").click()

    row = eyes.page.locator(".in-force li", has_text="printing")
    await expect(row).to_contain_text("2.5 a second")
    await expect(row).to_contain_text("3 at once")
    await row.get_by_role("button", name="Lift limits").click()
    await expect(row).to_have_count(0)
    limits = stage.call("GET", "/api/v1/queue/limits")["limits"]
    assert [limit for limit in limits if limit["task_type"] == "printing"] == []


async def test_a_worker_is_shown_and_drained(eyes: Eyes, stage: Stage) -> None:
    asked = {"name": "visitor", "task_types": ["etching"], "capacity": 3, "capabilities": ["press"], "version": "9.1"}
    stage.call("POST", "/internal/workers/register", asked)
    await eyes.open("/ui/workers")
    card = eyes.page.locator(".worker", has_text="visitor")
    for words in ("active", "0 of 3 slots used", "etching", "press", "9.1"):
        await expect(card).to_contain_text(words)

    await card.get_by_role("button", name="Drain…").click()
    await eyes.button("Drain").click()

    await expect(card.locator(".status")).to_have_text("draining")


async def test_finished_tasks_are_cleaned_up(eyes: Eyes, stage: Stage) -> None:
    await eyes.open("/ui/")

    await eyes.button("Clean up…").click()
    await eyes.see(re.compile("^At most 0 tasks"))
    await eyes.button("Remove for good").click()

    await eyes.see("0 tasks removed.")
    assert stage.call("GET", "/api/v1/audit?limit=1")["notes"][0]["action"] == "clean up"


async def test_keys_lead_everywhere(eyes: Eyes) -> None:
    await eyes.open("/ui/")
    await expect(eyes.page.locator("h1")).to_have_text("Overview")

    for key, name in (("w", "Workers"), ("d", "Dead letters"), ("c", "Controls"), ("s", "Submit a task")):
        await eyes.page.keyboard.press("g")
        await eyes.page.keyboard.press(key)
        await expect(eyes.page.locator("h1")).to_have_text(name)
    await eyes.page.keyboard.press("?")
    await expect(eyes.page.get_by_role("dialog", name="Keys")).to_be_visible()
    await eyes.page.keyboard.press("Escape")
    await eyes.page.locator("h1").click()
    await eyes.page.keyboard.press("/")
    await expect(eyes.page.get_by_label("Search tasks")).to_be_focused()
