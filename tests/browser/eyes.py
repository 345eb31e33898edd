"""A page as a person has it before them, and everything it complained about meanwhile."""

import json
import re
from pathlib import Path
from typing import Any

from playwright.async_api import ConsoleMessage, Locator, Page, expect

ROOT = Path(__file__).parents[2]
AXE = ROOT / "api" / "dashboard" / "web" / "node_modules" / "axe-core" / "axe.min.js"
SCREENSHOTS = ROOT / "build" / "screenshots"
VIEWS = {
    "overview": "/ui/",
    "tasks": "/ui/tasks",
    "workers": "/ui/workers",
    "dead-letters": "/ui/dead-letters",
    "controls": "/ui/controls",
    "submit": "/ui/submit",
}
PATIENCE_MS = 90_000
REFUSED = "Failed to load resource"


class Eyes:
    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        self.allowed: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        expect.set_options(timeout=PATIENCE_MS)
        page.set_default_timeout(PATIENCE_MS)

    async def open(self, path: str) -> None:
        """A fresh start of the page; marked, so that a reload would be noticed."""
        await self.page.goto(self.url + path)
        await self.page.evaluate("window.wasHere = true")

    async def assert_not_reloaded(self) -> None:
        assert await self.page.evaluate("window.wasHere === true")

    def allow(self, pattern: str) -> None:
        """A complaint the browser makes of its own, which a test brings about on purpose."""
        self.allowed.append(pattern)

    @property
    def unexpected(self) -> list[str]:
        return [words for words in self.complaints if not any(re.search(each, words) for each in self.allowed)]

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("button", name=name, exact=isinstance(name, str))

    async def see(self, words: str | re.Pattern[str]) -> None:
        await expect(self.page.get_by_text(words).first).to_be_visible()

    async def tile(self, name: str) -> str:
        value = self.page.locator(".tile", has=self.page.get_by_text(name, exact=True)).locator(".tile-value")
        return await value.inner_text()

    async def serious_problems(self, rules: tuple[str, ...] = ()) -> list[str]:
        """What axe finds, those that keep people out; by some rules or all."""
        await self.page.evaluate(AXE.read_text())
        chosen = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
        told = await self.page.evaluate(f"axe.run({json.dumps(chosen)}).then(JSON.stringify)")
        found: dict[str, Any] = json.loads(told)
        return [
            f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0].get('failureSummary', '')[:300]}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]

    async def screenshot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True, animations="disabled")

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)
