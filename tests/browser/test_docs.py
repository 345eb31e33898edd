"""The page at /docs: it shows every call of the API, tries them with a key, and loads nothing from other hosts."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import Browser, Locator, expect

from tests.api.running import environ, serving
from tests.browser.eyes import Eyes
from tests.client.services import command_done
from tests.stores import StoreUnderTest

STATS = "#operations-queue-queue_stats"


@pytest.fixture(scope="module")
def settings(running_stores: Callable[[str], StoreUnderTest]) -> dict[str, str]:
    return environ(running_stores("valkey").url, "docs-page", TIDEQ_AUTH="keys")


@pytest.fixture(scope="module")
def url(chromium_path: Path, settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(settings, tmp_path_factory.mktemp("docs")) as running:
        yield running.url


async def test_the_page_shows_every_call_and_a_key_tries_one(
    browser: Browser, url: str, settings: dict[str, str]
) -> None:
    paths = msgspec.json.decode(command_done(settings, "openapi"))["paths"]
    key = command_done(settings, "keys", "create", "reader", "--role", "viewer")
    context = await browser.new_context()
    eyes = Eyes(await context.new_page(), url)
    eyes.allow("401")
    requested: list[str] = []
    eyes.page.on("request", lambda request: requested.append(request.url))

    await eyes.open("/docs")
    await expect(eyes.page.locator(".opblock")).to_have_count(sum(map(len, paths.values())))
    stats = eyes.page.locator(STATS)
    await stats.locator(".opblock-summary-control").click()
    refused = await _status_when_tried(stats)
    await eyes.button("Authorize").click()
    await eyes.page.locator("#auth-bearer-value").fill(key)
    await eyes.page.get_by_label("Apply credentials").click()
    await eyes.button("Close").click()
    await stats.get_by_role("button", name="Clear").click()
    allowed = await _status_when_tried(stats)
    await eyes.screenshot("docs")
    await context.close()

    assert (refused, allowed) == ("401", "200")
    assert eyes.unexpected == []
    assert {each for each in requested if not each.startswith((f"{url}/", "data:"))} == set()


async def _status_when_tried(operation: Locator) -> str:
    await operation.get_by_role("button", name="Execute").click()
    return (await operation.locator(".live-responses-table .response-col_status").last.inner_text()).split()[0]
