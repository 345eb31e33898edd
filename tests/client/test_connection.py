"""Where the client finds the service, who it says it is, and what it says when that does not work."""

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.api.running import environ, serving
from tests.client.both import Form, client_of
from tests.client.services import command_done
from tests.stores import StoreUnderTest
from tideq.client import NO_RETRIES, Client, Forbidden, Unauthorized, UntrustedServer
from tideq.client.config import checked_url, client_config


class TestSettings:
    def test_arguments_go_before_the_environment_and_that_before_the_default(self) -> None:
        known = {"TIDEQ_URL": "http://a:1/", "TIDEQ_API_KEY": "tq_env"}

        def told(url: str | None, key: str | None, environ: dict[str, str]) -> tuple[str, str | None]:
            connection = client_config(url, key, None, 10, True, environ)
            return connection.url, connection.headers.get("Authorization")

        assert told("http://b:2/base/", "tq_arg", known) == ("http://b:2/base", "Bearer tq_arg")
        assert told(None, None, known) == ("http://a:1", "Bearer tq_env")
        assert told(None, "", known) == ("http://a:1", None)
        assert told(None, None, {}) == ("http://127.0.0.1:8080", None)

    @pytest.mark.parametrize(
        "url", ["127.0.0.1:8080", "redis://127.0.0.1", "http://", "tideq", "http://a b", "http://a:x"]
    )
    def test_what_is_no_url_is_refused_at_once(self, url: str) -> None:
        with pytest.raises(ValueError, match="not a valid service URL"):
            checked_url(url)

    def test_a_key_is_taken_as_files_give_it_and_no_other(self) -> None:
        assert client_config(None, "tq_a\n", None, 10, True, {}).headers["Authorization"] == "Bearer tq_a"
        for wrong in ("tq_ä", "tq_a\nX-Other: 1"):
            with pytest.raises(ValueError, match="API key"):
                client_config(None, wrong, None, 10, True, {})


class TestKeys:
    @pytest.fixture
    def closed(self, store: StoreUnderTest, task_type: str, tmp_path: Path) -> Iterator[Callable[[str], str]]:
        """A service that asks for keys; makes one for a role."""
        settings = environ(store.url, task_type, TIDEQ_AUTH="keys")
        keys = {role: command_done(settings, "keys", "create", role, "--role", role) for role in ("producer", "viewer")}
        with serving(settings, tmp_path) as running:
            yield lambda what: running.url if what == "url" else keys[what]

    async def test_a_key_opens_what_its_role_may_do(
        self, form: Form, closed: Callable[[str], str], task_type: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with client_of(form, closed("url")) as nobody:
            with pytest.raises(Unauthorized):
                await nobody.queue.stats()
        async with client_of(form, closed("url"), api_key=closed("viewer")) as viewer:
            await viewer.queue.stats()
            with pytest.raises(Forbidden):
                await viewer.submit(task_type)
        monkeypatch.setenv("TIDEQ_API_KEY", closed("producer"))
        async with client_of(form, closed("url")) as producer:
            assert (await producer.submit(task_type)).status == "queued"

    def test_a_client_does_not_show_its_key(self) -> None:
        with Client("http://127.0.0.1", "tq_secret") as client:
            assert "tq_secret" not in repr(client) + repr(client.transport)


class TestTrust:
    async def test_an_unknown_authority_is_told_at_once_and_a_known_one_trusted(self, form: Form) -> None:
        authority: Any = trustme.CA()
        server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(server_side)
        ours = ssl.create_default_context()
        authority.configure_trust(ours)
        count = 0

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal count
            count += 1
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server_side)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with client_of(form, url) as suspicious:
            with pytest.raises(UntrustedServer, match="certificate"):
                await suspicious.queue.stats()
        async with client_of(form, url, verify=ours, retries=NO_RETRIES) as trusting:
            assert (await trusting.queue.stats()).queue.total_depth == 0
        server.close()

        assert count == 1


class TestImporting:
    def test_importing_tideq_imports_nothing_heavy(self) -> None:
        found = _modules_after("import tideq")

        assert not found & {"aiohttp", "urllib3", "msgspec", "anyio", "cyclopts", "ssl"}

    def test_the_client_imports_no_server_nor_store(self) -> None:
        found = _modules_after("from tideq import AsyncClient, Client, TideqError; import tideq.client.bulk")

        assert not found & {
            "aiohttp",
            "urllib3",
            "urllib.request",
            "redis",
            "psycopg",
            "litestar",
            "uvicorn",
            "structlog",
            "opentelemetry",
        }
        assert not {name for name in found if name.startswith(("tideq.api", "tideq.persistence", "tideq.queue_core"))}

    def test_an_unknown_name_is_an_attribute_error(self) -> None:
        import tideq as package

        with pytest.raises(AttributeError, match="Cliënt"):
            _ = getattr(package, "Cliënt")  # noqa: B009 - the name is the point


def _modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())
