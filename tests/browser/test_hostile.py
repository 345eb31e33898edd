"""Whatever people and programs write is text on the page: never an element, never a script, never a complaint."""

import json
from typing import Any

import pytest
from playwright.async_api import Browser, Route, expect

from tests.browser.eyes import Eyes
from tests.browser.stage import Stage

HOSTILE = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg onload=window.pwned=1>",
    "<svg><script>window.pwned=1</script></svg>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<body onload=window.pwned=1>",
    "<input autofocus onfocus=window.pwned=1>",
    "<details open ontoggle=window.pwned=1>",
    "<a href='javascript:window.pwned=1'>click</a>",
    "<math><mtext></table><img src=x onerror=window.pwned=1>",
    "<base href='https://evil.example/'>",
    "<link rel=stylesheet href='https://evil.example/x.css'>",
    "<style>*{display:none}</style>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<form action='https://evil.example'><button>Retry</button></form>",
    "<object data='data:text/html,<script>window.pwned=1</script>'></object>",
    "</pre></td></tr></table><h1>gone</h1>",
    '" onmouseover="window.pwned=1" x="',
    "' onfocus='window.pwned=1' autofocus='",
    "`${window.pwned=1}`",
    "{{constructor.constructor('window.pwned=1')()}}",
    "${{7*7}}",
    "<%= window.pwned=1 %>",
    "javascript:window.pwned=1",
    "data:text/html,<script>window.pwned=1</script>",
    "__proto__",
    "constructor",
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "\u202e\u2066<b>backwards</b>\u2069",
    "<!--<img src='--><img src=x onerror=window.pwned=1>",
)
OURS = """() => [...document.querySelectorAll('body *')]
  .filter((each) => /^(script|img|iframe|object|embed|style|link|base|meta|math)$/i.test(each.tagName)
    || [...each.attributes].some((attribute) => attribute.name.startsWith('on'))
    || /^(javascript|data):/i.test(each.getAttribute('href') ?? ''))
  .map((each) => each.outerHTML)"""
ATTACK = """() => {
  const attempts = [
    () => { document.body.innerHTML = '<img src=x onerror="window.pwned = 1">'; },
    () => { document.body.setAttribute('onclick', 'window.pwned = 1'); document.body.click(); },
  ];
  return attempts.map((attempt) => {
    try { attempt(); return 'allowed'; } catch (error) { return error.name; }
  });
}"""


def _died_of(stage: Stage, words: str, worker: str) -> str:
    """A task that has the words everywhere they may stand."""
    documents: dict[str, Any] = {"parameters": {words: words, "list": [words]}, "tags": {"words": words}}
    task_id = stage.submit("hostile", max_retries=0, idempotency_key=words, **documents)
    answer = stage.call("POST", f"/internal/workers/{worker}/poll", {"available_capacity": 1})
    held = {"task_id": answer["tasks"][0]["task_id"], "lease": answer["tasks"][0]["lease"]}
    stage.call("POST", f"/internal/workers/{worker}/start", held)
    progress = {**held, "progress_percent": 5, "status_message": words}
    stage.call("POST", f"/internal/workers/{worker}/progress", progress)
    error = {"message": words, "code": words[:60], "retriable": True, "details": {"traceback": words, words: words}}
    stage.call("POST", f"/internal/workers/{worker}/result", {**held, "status": "failed", "error": error})
    return task_id


async def _assert_harmless(eyes: Eyes) -> None:
    assert await eyes.page.evaluate(OURS) == []
    assert await eyes.page.evaluate("window.pwned") is None


async def test_thirty_hostile_texts_stay_texts_in_every_view(eyes: Eyes, stage: Stage) -> None:
    assert len(set(HOSTILE)) == 30
    hostile = " ".join(HOSTILE)[:255]
    asked = {"name": "mallory", "task_types": ["hostile"], "capacity": 99, "host": hostile, "version": HOSTILE[1]}
    worker = stage.call("POST", "/internal/workers/register", asked)["worker_id"]
    dead = {_died_of(stage, words, worker): words for words in HOSTILE}
    stage.call("POST", "/api/v1/queue/pause", {"task_type": "hostile", "reason": HOSTILE[1] + HOSTILE[0]})
    stage.wait(lambda: stage.count(task_type="hostile", status="dead_letter") == 30, "all are dead")

    for task_id, words in dead.items():
        await eyes.open(f"/ui/tasks/{task_id}")
        await expect(eyes.page.locator(".error-message").first).to_have_text(words.strip())
        assert (
            json.dumps(words, ensure_ascii=False)
            in await eyes.page.locator("pre.json, .document pre").last.inner_text()
        )
        await _assert_harmless(eyes)
    for path in ("/ui/tasks?q=type:hostile", "/ui/", "/ui/dead-letters", "/ui/controls", "/ui/workers"):
        await eyes.open(path)
        await expect(eyes.page.locator("main")).to_contain_text("hostile")
        await expect(eyes.page.locator(".pause-badge")).to_contain_text(HOSTILE[1])
        await _assert_harmless(eyes)
    stage.call("POST", "/api/v1/queue/resume", {"task_type": "hostile"})


@pytest.mark.parametrize("words", HOSTILE[:24])
def test_a_hostile_text_is_no_name(stage: Stage, words: str) -> None:
    """Task types, capabilities, tag keys and workers' names are names: they cannot hold any of it."""
    submission = stage.http.post("/api/v1/tasks", json={"task_type": words})
    tag = stage.http.post("/api/v1/tasks", json={"task_type": "x", "tags": {words: "1"}})
    worker = stage.http.post("/internal/workers/register", json={"name": words})

    assert [answer.status_code for answer in (submission, tag, worker)] == [422, 422, 422]


async def test_a_search_with_hostile_words_stays_a_text(eyes: Eyes) -> None:
    eyes.allow("400")
    await eyes.open("/ui/tasks")
    for words in HOSTILE:
        await eyes.page.get_by_label("Search tasks").fill(f'error:"{words.replace(chr(34), "")}"')
        await eyes.button("Search").click()
        await expect(eyes.page.locator(".chip.other")).to_be_visible()
        await _assert_harmless(eyes)


async def test_the_policy_blocks_a_script_inside_the_page(browser: Browser, stage: Stage) -> None:
    page, said = await browser.new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text))
    await page.route("**/ui/submit", _with_a_script)
    await page.goto(stage.url + "/ui/submit")
    await expect(page.locator("h1")).to_be_visible()

    assert await page.evaluate("window.pwned") is None
    assert any("Content Security Policy" in words for words in said)
    await page.close()


async def test_a_text_cannot_be_made_into_markup_or_a_handler(browser: Browser, stage: Stage) -> None:
    """Even if all else failed: trusted types refuse it."""
    page = await browser.new_page()
    await page.goto(stage.url + "/ui/submit")
    await expect(page.locator("h1")).to_be_visible()

    outcomes = await page.evaluate(ATTACK)

    assert "allowed" not in outcomes
    assert await page.evaluate("window.pwned") is None
    await page.close()


async def _with_a_script(route: Route) -> None:
    answer = await route.fetch()
    body = (await answer.text()).replace("</head>", "<script>window.pwned = 1</script></head>")
    await route.fulfill(response=answer, body=body)
