"""Finding tasks, doing something to many of them, reading one exactly."""

import colorsys
import re
from typing import Literal

import httpx
import pytest
from playwright.async_api import expect

from tests.browser.eyes import Eyes
from tests.browser.stage import TRACES, Stage

COLOUR_OF = """([shape, property]) => {
  const [space, tag] = shape.startsWith('dot') ? ['http://www.w3.org/2000/svg', 'circle'] : [null, 'span'];
  const shown = space ? document.createElementNS(space, tag) : document.createElement(tag);
  shown.setAttribute('class', shape);
  document.body.append(shown);
  const colour = getComputedStyle(shown)[property];
  shown.remove();
  return colour;
}"""
SHAPES = {
    "queued": ["status queued", "bar-part queued", "span queued", "dot ready", "dot scheduled"],
    "executing": ["status executing", "bar-part executing", "bar-part assigned", "span executing", "dot executing"],
    "completed": ["status completed", "bar-part completed"],
    "failed": ["status failed", "bar-part failed"],
    "dead_letter": ["status dead_letter", "bar-part dead_letter"],
    "cancelled": ["status cancelled", "bar-part cancelled"],
}
HUES = {
    "queued": (200, 230),
    "executing": (35, 60),
    "completed": (120, 160),
    "failed": (0, 15),
    "dead_letter": (300, 335),
}
WAITING, LEVELS = {"dot ready": "fill", "bar-fill": "backgroundColor"}, ("high", "medium", "low")
RINGS = {"queued": "dot backoff", "executing": "dot assigned"}
BIG = '{"order":12345678901234567890,"price":1.10,"tiny":1e-400,"nested":{"10":"b","9":"a"}}'


async def test_filters_columns_and_order_survive_a_reload(eyes: Eyes, stage: Stage) -> None:
    for customer in ("7", "8"):
        stage.submit("hello", {}, tags={"customer": customer, "scene": "filters"})
    stage.submit("absent", {}, tags={"customer": "7", "scene": "filters"})
    stage.wait(lambda: stage.count(tag="scene:filters", status="completed") == 2, "the worker has done its part")
    await eyes.open("/ui/tasks")

    await eyes.page.get_by_label("Search tasks").fill("tag.scene:filters tag.customer:7")
    await eyes.button("Search").click()
    await eyes.page.get_by_role("button", name="queued", exact=True).click()
    await eyes.button("Type").click()

    for _ in range(2):
        await expect(eyes.page.locator("tbody tr")).to_have_count(1)
        await expect(eyes.page.locator("tbody tr")).to_contain_text("absent")
        await expect(eyes.button("queued")).to_have_attribute("aria-pressed", "true")
        await expect(eyes.page.get_by_role("columnheader", name="Type")).to_have_attribute("aria-sort", "ascending")
        await expect(eyes.button(re.compile("tag.customer: 7"))).to_be_visible()
        await eyes.page.reload()


async def test_pages_follow_one_another_and_can_be_linked_to(eyes: Eyes, stage: Stage) -> None:
    stage.submit_many("paged", 60)
    stage.wait(lambda: stage.count(task_type="paged") == 60, "history has them")
    await eyes.open("/ui/tasks?q=type:paged")
    rows = eyes.page.locator("tbody tr")
    await expect(rows).to_have_count(50)
    newest = await rows.first.locator(".id").get_attribute("href")

    await eyes.button("Older").click()
    await expect(rows).to_have_count(10)
    await eyes.page.reload()
    await expect(rows).to_have_count(10)
    await eyes.button("Newest").click()

    await expect(rows).to_have_count(50)
    assert await rows.first.locator(".id").get_attribute("href") == newest


async def test_all_of_500_matching_tasks_are_retried_and_it_says_so(eyes: Eyes, stage: Stage) -> None:
    (stage.folder / "mended").unlink(missing_ok=True)
    stage.submit_many("fragile", 500, max_retries=0, tags={"scene": "bulk"})
    stage.wait(lambda: stage.count(tag="scene:bulk", status="failed") == 500, "all have failed")
    (stage.folder / "mended").touch()
    await eyes.open("/ui/tasks?q=tag.scene:bulk%20status:failed")
    await eyes.see("500 tasks match")

    await eyes.page.get_by_label("all 500 matching").check()
    await eyes.button("Retry 500").click()
    await expect(eyes.page.get_by_role("dialog", name="Retry 500 tasks?")).to_be_visible()
    await eyes.button("Retry 500 tasks").click()

    await expect(eyes.page.get_by_role("dialog").get_by_role("status")).to_have_text("Finished. Retried 500.")
    stage.wait(lambda: stage.count(tag="scene:bulk", status="completed") == 500, "all were done")


async def test_selected_tasks_are_cancelled_and_finished_ones_left_alone(eyes: Eyes, stage: Stage) -> None:
    waiting = [stage.submit("nobody-does-this", {}, tags={"scene": "selected"}) for _ in range(3)]
    done = stage.submit("hello", {}, tags={"scene": "selected"})
    stage.wait(lambda: stage.count(tag="scene:selected", status="completed") == 1, "one is done")
    await eyes.open("/ui/tasks?q=tag.scene:selected")
    await expect(eyes.page.locator("tbody tr")).to_have_count(4)

    for task_id in (*waiting[:2], done):
        await eyes.page.get_by_label(f"Select {task_id}").check()
    await eyes.button("Cancel 3").click()
    eyes.allow("409")
    await eyes.button("Cancel 3 tasks").click()

    said = eyes.page.get_by_role("dialog").get_by_role("status")
    await expect(said).to_have_text("Finished. Cancelled 2, 1 left as they are.")
    await eyes.button("Close").click()
    states = [stage.call("GET", f"/api/v1/tasks/{task_id}")["status"] for task_id in (*waiting, done)]
    assert states == ["cancelled", "cancelled", "queued", "completed"]


async def test_a_type_is_chosen_from_a_list_of_those_there_are(eyes: Eyes, stage: Stage) -> None:
    stage.submit("engraving", {}, tags={"scene": "types"})
    stage.submit("gilding", {}, tags={"scene": "types"})
    stage.wait(lambda: stage.count(tag="scene:types") == 2, "history has them")
    await eyes.open("/ui/tasks?q=tag.scene:types")
    choice = eyes.page.get_by_role("combobox", name="Task type")
    await expect(eyes.page.locator("tbody tr")).to_have_count(2)

    await choice.select_option("gilding")

    await expect(eyes.page.locator("tbody tr")).to_have_count(1)
    await expect(eyes.page.locator("tbody tr")).to_contain_text("gilding")
    await expect(eyes.page.get_by_label("Search tasks")).to_have_value("tag.scene:types type:gilding")
    await choice.select_option("any type")
    await expect(eyes.page.locator("tbody tr")).to_have_count(2)


async def test_a_type_of_which_all_tasks_have_ended_can_be_chosen(eyes: Eyes, stage: Stage) -> None:
    """Nothing of it waits, no worker does it, and the page does not show it."""
    stage.call("DELETE", f"/api/v1/tasks/{stage.submit('bookbinding', {}, tags={'scene': 'ended'})}")
    stage.wait(lambda: stage.count(tag="scene:ended", status="cancelled") == 1, "history has it")
    await eyes.open("/ui/tasks?q=tag.scene:no-such-scene")
    await eyes.see("Nothing matches")

    await eyes.page.get_by_role("combobox", name="Task type").select_option("bookbinding")
    await eyes.button(re.compile("tag.scene: no-such-scene")).click()

    await expect(eyes.page.locator("tbody tr")).to_have_count(1)
    await expect(eyes.page.locator("tbody tr")).to_contain_text("bookbinding")


async def test_a_row_says_how_many_attempts_were_made_of_how_many_and_of_how_many_errors_it_shows_the_last(
    eyes: Eyes, stage: Stage
) -> None:
    (stage.folder / "mended").unlink(missing_ok=True)
    task_id = stage.submit("fragile", {"number": 1}, max_retries=0, tags={"scene": "again"})
    stage.wait(lambda: stage.call("GET", f"/api/v1/tasks/{task_id}")["error_count"] == 1, "it failed")
    stage.call("POST", f"/api/v1/tasks/{task_id}/retry", {})
    stage.wait(lambda: stage.call("GET", f"/api/v1/tasks/{task_id}")["error_count"] == 2, "it failed again")
    (stage.folder / "calm").unlink(missing_ok=True)
    retried = stage.submit("flaky", {}, max_retries=3, tags={"scene": "again"}, backoff={"base_seconds": 3_600})
    stage.wait(lambda: stage.call("GET", f"/api/v1/tasks/{retried}")["retry_count"] == 1, "it waits to be tried again")
    waiting = stage.submit("absent", {}, max_retries=3, tags={"scene": "again"})
    stage.wait(lambda: stage.count(tag="scene:again") == 3, "history has them")

    await eyes.open("/ui/tasks?q=tag.scene:again")

    await expect(eyes.page.locator("tbody tr", has_text="absent")).to_contain_text("0 / 4")
    revived = eyes.page.locator("tbody tr", has_text="fragile")
    await expect(revived).to_contain_text("last of 2: ")
    await expect(revived.get_by_role("cell", name="1 / 1", exact=True)).to_be_visible()
    await expect(eyes.page.locator("tbody tr", has_text="flaky")).to_contain_text("1 / 4")
    stage.call("DELETE", f"/api/v1/tasks/{retried}")
    await eyes.open(f"/ui/tasks/{waiting}")
    await eyes.see("0 / 4; 0 of 3 retries used")


async def test_the_last_failures_say_of_how_many_errors_they_show_the_last(eyes: Eyes, stage: Stage) -> None:
    (stage.folder / "mended").unlink(missing_ok=True)
    task_id = stage.submit("fragile", {"number": 77}, max_retries=0)
    stage.wait(lambda: stage.call("GET", f"/api/v1/tasks/{task_id}")["error_count"] == 1, "it failed")
    stage.call("POST", f"/api/v1/tasks/{task_id}/retry", {})
    stage.wait(lambda: stage.call("GET", f"/api/v1/tasks/{task_id}")["error_count"] == 2, "it failed again")

    await eyes.open("/")

    failures = eyes.page.locator(".card", has_text="Last failures").locator("tbody tr")
    await expect(failures.filter(has_text="part 77 is broken")).to_contain_text("last of 2: part 77 is broken")


async def test_each_row_offers_what_its_state_allows_and_asks_before_it_does_it(eyes: Eyes, stage: Stage) -> None:
    task_id = stage.submit("absent", {}, tags={"scene": "rows"})
    stage.wait(lambda: stage.count(tag="scene:rows") == 1, "history has it")
    await eyes.open("/ui/tasks?q=tag.scene:rows")
    row, dialog = eyes.page.locator("tbody tr"), eyes.page.get_by_role("dialog")
    status = row.locator(".status")

    for verb, done, state, offered in (
        ("Cancel", "Cancelled", "cancelled", ["Retry", "Purge"]),
        ("Retry", "Retried", "queued", ["Cancel"]),
        ("Cancel", "Cancelled", "cancelled", ["Retry", "Purge"]),
    ):
        await row.get_by_role("button", name=f"{verb} {task_id}").click()
        await expect(dialog).to_contain_text(f"{verb} 1 task?")
        await dialog.get_by_role("button", name=f"{verb} 1 task").click()
        await expect(dialog.get_by_role("status")).to_have_text(f"Finished. {done} 1.")
        await dialog.get_by_role("button", name="Close").click()
        await expect(status).to_have_text(state)
        await expect(row.locator(".row-verbs button")).to_have_text(offered)

    await row.get_by_role("button", name=f"Purge {task_id}").click()
    await dialog.get_by_role("button", name="Purge 1 task").click()
    await expect(dialog.get_by_role("status")).to_have_text("Finished. Purged 1.")
    assert stage.http.get(f"/api/v1/tasks/{task_id}").status_code == 404


async def test_a_scheduled_task_says_when_it_will_run_in_words_that_people_read(eyes: Eyes, stage: Stage) -> None:
    task_id = stage.submit("absent", {}, delay_seconds=3 * 365 * 86_400 + 58.5 * 86_400)

    await eyes.open(f"/ui/tasks/{task_id}")

    await eyes.see(re.compile(r"It is scheduled: it will run in 3 years 58 days, at \d{4}-\d\d-\d\d"))
    await eyes.see("it is hidden for another 3 years 58 days (submitted)")


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_each_state_has_a_colour_of_its_own(eyes: Eyes, theme: Literal["light", "dark"]) -> None:
    """Waiting blue, running yellow, done green, failed red, dead apart from failed, cancelled grey; wherever shown."""
    await eyes.page.emulate_media(color_scheme=theme)
    await eyes.open("/ui/tasks")
    await expect(eyes.page.locator("h1")).to_be_visible()
    drawn = {"status": "color", "bar-part": "backgroundColor", "span": "backgroundColor", "dot": "fill"}
    known = [(state, shape, drawn[shape.partition(" ")[0]]) for state, shapes in SHAPES.items() for shape in shapes]
    known += [("queued", f"{shape} {level}", how) for level in LEVELS for shape, how in WAITING.items()]
    known += [(state, shape, "stroke") for state, shape in RINGS.items()]

    for state, shape, how in known:
        found = await eyes.page.evaluate(COLOUR_OF, [shape, how])
        red, green, blue = map(int, re.findall(r"\d+", found)[:3])
        hue = round(colorsys.rgb_to_hls(red / 255, green / 255, blue / 255)[0] * 360)
        is_grey = max(red, green, blue) - min(red, green, blue) < 30

        lowest, highest = HUES.get(state, (0, 360))
        assert is_grey == (state == "cancelled"), f"{shape}: {found}"
        assert lowest <= hue <= highest, f"{shape}: {found}"


async def test_all_states_of_the_overview_are_drawn_by_that_scheme(eyes: Eyes) -> None:
    """Its bars, and what the tide's legend explains."""
    await eyes.open("/")
    await expect(eyes.page.locator(".tide-legend li").first).to_be_visible()

    kinds = await eyes.page.locator(".tide-legend .dot").evaluate_all("dots => dots.map(dot => dot.className.baseVal)")
    parts = await eyes.page.locator(".bar-legend .bar-part").evaluate_all("parts => parts.map(part => part.className)")

    known = {shape for shapes in SHAPES.values() for shape in shapes} | set(RINGS.values())
    assert {kind for kind in kinds if "ready" not in kind} <= known
    assert set(parts) <= known


async def test_numbers_stay_exact_on_screen_and_through_clone_and_edit(eyes: Eyes, stage: Stage) -> None:
    body = f'{{"task_type":"exact","parameters":{BIG}}}'
    task_id = stage.http.post("/api/v1/tasks", content=body).json()["task_id"]
    await eyes.open(f"/ui/tasks/{task_id}")
    shown = eyes.page.get_by_label("Parameters", exact=True).locator("pre")
    await expect(shown).to_contain_text("12345678901234567890")
    assert re.sub(r"\s", "", await shown.inner_text()) == BIG

    await eyes.button("Clone and edit").click()
    await expect(eyes.page.get_by_label("Task type")).to_have_value("exact")
    await eyes.page.get_by_label("Tags").fill("scene=clone")
    await eyes.button("Submit").click()
    await eyes.page.get_by_role("status").get_by_role("link").click()

    await expect(eyes.page.locator("h1")).to_contain_text("exact")
    copy = eyes.page.url.rpartition("/")[2]
    assert copy != task_id
    assert BIG in re.sub(r"\s", "", stage.http.get(f"/api/v1/tasks/{copy}").text)


@pytest.mark.parametrize(("search", "query"), [('error:"is broken"', "fragile"), ("after:1h type:hello", "hello")])
async def test_what_is_asked_for_in_words_is_found(eyes: Eyes, stage: Stage, search: str, query: str) -> None:
    (stage.folder / "mended").unlink(missing_ok=True)
    stage.submit(query, {"number": 1}, max_retries=0)
    await eyes.open(f"/ui/tasks?{httpx.QueryParams({'q': search})}")

    await expect(eyes.page.locator("tbody tr").first).to_contain_text(query)


async def test_a_word_that_means_nothing_is_explained(eyes: Eyes) -> None:
    await eyes.open("/ui/tasks?q=colour:red")

    await eyes.see("“colour:” is not a qualifier")


async def test_a_task_that_does_not_exist_is_told_so(eyes: Eyes) -> None:
    eyes.allow("404")
    await eyes.open("/ui/tasks/0192f0c1-2b3c-7d4e-8f50-112233445566")

    await eyes.see("There is no such task")


@pytest.mark.parametrize(("flags", "link_count"), [("01", 1), ("00", 0)])
async def test_a_task_links_to_its_trace_where_that_is_kept(
    eyes: Eyes, stage: Stage, flags: str, link_count: int
) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-{flags}"}
    task_id = stage.http.post("/api/v1/tasks", json={"task_type": "absent"}, headers=headers).json()["task_id"]

    await eyes.open(f"/ui/tasks/{task_id}")

    await eyes.see(trace_id)
    await expect(eyes.page.locator(f"a[href='{TRACES}/{trace_id}']")).to_have_count(link_count)


async def test_a_task_without_a_trace_shows_its_own_and_links_nowhere(eyes: Eyes, stage: Stage) -> None:
    task_id = stage.submit("absent", {})

    await eyes.open(f"/ui/tasks/{task_id}")

    await eyes.see(task_id.replace("-", ""))
    await expect(eyes.page.locator(f"a[href^='{TRACES}']")).to_have_count(0)
