"""A real Chromium before the real service. Skipped, with the reason, where no Chromium can be had."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, ViewportSize, async_playwright

from tests import tools
from tests.browser.eyes import Eyes
from tests.browser.stage import Stage, staged
from tideq.api.dashboard.pages import STATIC

WINDOW = ViewportSize(width=1360, height=900)


@pytest.fixture(scope="package")
def chromium_path() -> Path:
    if not (STATIC / "index.html.gz").exists():
        pytest.skip("the dashboard is not built: `make install` says why")
    found = tools.find("chromium")
    if found is None:
        pytest.skip("no chromium here: `make tools` installs Debian's")
    return found


@pytest.fixture(scope="package")
async def browser(chromium_path: Path) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path)
        yield browser
        await browser.close()


@pytest.fixture(scope="package")
def stage(chromium_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture
async def eyes(browser: Browser, stage: Stage) -> AsyncIterator[Eyes]:
    """A new window; at the end the page must not have complained about anything."""
    context = await browser.new_context(viewport=WINDOW, color_scheme="light")
    eyes = Eyes(await context.new_page(), stage.url)
    yield eyes
    await context.close()
    assert eyes.unexpected == []
