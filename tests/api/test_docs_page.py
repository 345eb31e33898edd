"""The page at /docs: all of the document is on it, and nothing is loaded from elsewhere."""

import re
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest


@pytest.fixture
async def document(http: httpx.AsyncClient) -> dict[str, Any]:
    return (await http.get("/openapi.json")).json()


class Page(HTMLParser):
    """What a page holds: its ids, its links, what it loads, and what a strict policy forbids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.forbidden: list[str] = []
        self.labelled: set[str] = set()
        self.fields: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids += [given["id"]] if "id" in given else []
        self.addresses += [given[name] for name in ("src", "href", "action", "poster", "srcset") if name in given]
        self.forbidden += [name for name in given if name.startswith("on") or name == "style"]
        self.forbidden += [tag] if tag in {"style", "iframe", "object", "base"} else []
        self.forbidden += [tag] if tag == "script" and "src" not in given else []
        self.labelled |= {given["for"]} if tag == "label" else set()
        if tag in {"input", "textarea"} and "aria-label" not in given:
            self.fields.append(given["id"])


@pytest.fixture
async def page(http: httpx.AsyncClient) -> Page:
    answer = await http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    return Page(answer.text)


async def test_the_page_shows_every_call_and_every_schema(page: Page, document: dict[str, Any]) -> None:
    calls = {told["operationId"] for methods in document["paths"].values() for told in methods.values()}

    assert calls <= set(page.ids)
    assert {f"schema-{name}" for name in document["components"]["schemas"]} <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)


async def test_nothing_on_the_page_points_outside(page: Page, http: httpx.AsyncClient) -> None:
    local = {address for address in page.addresses if not address.startswith("#")}
    anchors = {address[1:] for address in page.addresses if address.startswith("#")}
    loaded = [(await http.get(path)).text for path in ("/docs/page.js", "/docs/page.css")]

    assert local == {"/docs/page.js", "/docs/page.css", "/openapi.json", "data:,"}
    assert anchors <= set(page.ids)
    assert page.forbidden == []
    assert not any(re.search(r"(https?:)?//[a-z0-9]|@import|url\(|eval\(|innerHTML", text) for text in loaded)


async def test_every_field_on_the_page_has_a_label(page: Page) -> None:
    assert page.fields
    assert set(page.fields) <= page.labelled


@pytest.mark.parametrize("path", ["/docs", "/docs/page.js", "/docs/page.css", "/openapi.json"])
async def test_a_browser_is_told_to_load_nothing_from_elsewhere(http: httpx.AsyncClient, path: str) -> None:
    headers = (await http.get(path)).headers

    policy = {rule.split()[0]: rule.split()[1:] for rule in headers["content-security-policy"].split(";")}
    assert policy["default-src"] == ["'none'"]
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == ["'self'"]
    assert policy["img-src"] == ["'self'", "data:"]
    assert headers["x-content-type-options"] == "nosniff"
