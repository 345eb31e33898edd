"""Serving the dashboard and the API's page: which path gives what, for how long, and what if they were not built."""

import gzip
from pathlib import Path

import httpx
import pytest

from tideq.api.dashboard.pages import Pages

PAGE = b"<!doctype html><title>made up</title>"
DOCS = b"<!doctype html><title>made up as well</title>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html.gz").write_bytes(gzip.compress(PAGE))
    (tmp_path / "docs.html.gz").write_bytes(gzip.compress(DOCS))
    (tmp_path / "assets" / "index-abc.js.gz").write_bytes(gzip.compress(b"export {};" * 200))
    (tmp_path / "built-from").write_text("secret of the build")
    return tmp_path


def client(folder: Path) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(Pages(folder)), base_url="http://tideq")  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/", "/ui", "/ui/", "/ui/tasks", "/ui/tasks/0192f0c1", "/ui/no/such/view"])
async def test_every_link_into_the_page_gives_the_page(folder: Path, path: str) -> None:
    answer = await client(folder).get(path)

    assert (answer.status_code, answer.content) == (200, PAGE)
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("path", ["/docs", "/docs/"])
async def test_the_page_of_the_api_is_another_one(folder: Path, path: str) -> None:
    answer = await client(folder).get(path)

    assert (answer.status_code, answer.content) == (200, DOCS)
    assert answer.headers["cache-control"] == "no-cache"


async def test_a_client_without_compression_gets_the_plain_file(folder: Path) -> None:
    answer = await client(folder).get("/ui/assets/index-abc.js", headers={"Accept-Encoding": "identity"})

    assert answer.text == "export {};" * 200
    assert "content-encoding" not in answer.headers


async def test_an_asset_is_kept_for_ever_and_compressed(folder: Path) -> None:
    answer = await client(folder).get("/ui/assets/index-abc.js")

    assert answer.text == "export {};" * 200
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) < 200


@pytest.mark.parametrize("path", ["/ui/assets/gone.js", "/ui/assets/../built-from", "/ui/assets/%2e%2e/pages.py"])
async def test_an_asset_that_is_not_there_is_not_the_page(folder: Path, path: str) -> None:
    answer = await client(folder).get(path)

    assert b"secret" not in answer.content
    assert answer.status_code == 404 or answer.content == PAGE


async def test_the_page_is_not_sent_again_to_who_has_it(folder: Path) -> None:
    first = await client(folder).get("/")

    again = await client(folder).get("/", headers={"If-None-Match": first.headers["etag"]})

    assert (again.status_code, again.content) == (304, b"")


async def test_the_page_is_only_read(folder: Path) -> None:
    answer = await client(folder).post("/ui/", content=b"x")

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_without_a_built_dashboard_the_page_says_so_in_words(tmp_path: Path) -> None:
    answer = await client(tmp_path / "nothing").get("/")

    assert answer.status_code == 200
    assert "dashboard was not built" in answer.text
    assert "make install" in answer.text


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/ui/tasks?q=type:resize", "/ui/assets/gone.js"])
async def test_no_key_is_needed_for_the_page_and_its_policy_is_strict(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)

    assert answer.status_code in (200, 404)
    policy = {rule.split()[0]: rule.split()[1:] for rule in answer.headers["content-security-policy"].split(";")}
    assert policy["default-src"] == ["'none'"]
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == ["'self'"]
    assert policy["img-src"] == ["'self'", "data:"]
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_page_is_no_call_of_the_api(http: httpx.AsyncClient) -> None:
    paths = (await http.get("/openapi.json")).json()["paths"]

    assert not [path for path in paths if path in ("/", "/docs") or path.startswith("/ui")]
