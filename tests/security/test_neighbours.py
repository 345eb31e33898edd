"""An open service on loopback and the web pages its owner happens to look at: they neither read nor change anything."""

import httpx
import pytest

from tests.api.bench import assert_problem
from tests.kit import Kit
from tideq.api.service import Service
from tideq.api.settings import Auth, read_service_settings
from tideq.queue_core.settings import SettingsError

TASK = {"task_type": "resize"}
OURS = ("127.0.0.1:8080", "localhost", "LOCALHOST:8080", "[::1]:8080", "10.0.0.7:80", "tideq", "a.localhost:8080")
FOREIGN = (
    "evil.example",
    "evil.example:8080",
    "127.0.0.1.evil.example",
    "localhost.evil.example:8080",
    "evil.example.",
)
FOREIGN_ORIGINS = ("https://evil.example", "null", "http://127.0.0.1:9999", "http://localhost", "file://")


class TestOpen:
    @pytest.mark.parametrize("host", OURS)
    async def test_who_asks_by_an_address_or_a_name_of_ones_own_is_answered(
        self, http: httpx.AsyncClient, host: str
    ) -> None:
        answer = await http.get("/api/v1/queue/stats", headers={"Host": host})

        assert answer.status_code == 200

    @pytest.mark.parametrize("host", FOREIGN)
    async def test_a_name_that_somebody_could_own_is_refused(
        self, http: httpx.AsyncClient, kit: Kit, host: str
    ) -> None:
        """DNS rebinding: the page's own name leads here, so the browser lets it read the answers."""
        before = await kit.dump()

        read = await http.get("/api/v1/queue/stats", headers={"Host": host})
        written = await http.post("/api/v1/tasks", json=TASK, headers={"Host": host})

        assert_problem(read, 403, "forbidden")
        assert_problem(written, 403, "forbidden")
        assert await kit.dump() == before

    @pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
    async def test_a_page_of_another_place_cannot_send_anything(
        self, http: httpx.AsyncClient, kit: Kit, origin: str
    ) -> None:
        """CSRF: a form or a simple fetch needs no leave to send, and says where it comes from."""
        before = await kit.dump()
        headers = {"Host": "127.0.0.1:8080", "Origin": origin, "Content-Type": "text/plain"}

        answer = await http.post("/api/v1/tasks", json=TASK, headers=headers)

        assert_problem(answer, 403, "forbidden")
        assert await kit.dump() == before

    async def test_the_services_own_page_may(self, http: httpx.AsyncClient, kit: Kit) -> None:
        headers = {"Host": "127.0.0.1:8080", "Origin": "http://127.0.0.1:8080"}

        assert (await http.post("/api/v1/tasks", json=TASK, headers=headers)).status_code == 201

    async def test_no_answer_lets_pages_of_other_places_read_it(self, http: httpx.AsyncClient) -> None:
        asked = {"Origin": "http://tideq", "Access-Control-Request-Method": "POST"}

        answers = [await http.get("/api/v1/queue/stats"), await http.options("/api/v1/tasks", headers=asked)]

        assert not [name for each in answers for name in each.headers if name.startswith("access-control-")]


class TestWithKeys:
    @pytest.fixture
    def auth(self) -> Auth:
        return "keys"

    async def test_a_key_is_what_counts(self, service: Service, http: httpx.AsyncClient) -> None:
        """No browser adds it by itself, so there is nothing for a page of another place to abuse."""
        key = await service.access_keys.create("shop", "admin", 0)
        headers = {"Host": "tideq.example", "Origin": "https://tideq.example", "Authorization": f"Bearer {key}"}

        answer = await http.post("/api/v1/tasks", json=TASK, headers=headers)

        assert answer.status_code == 201
        assert "set-cookie" not in answer.headers


async def test_names_for_a_proxy_are_a_setting(http: httpx.AsyncClient, service: Service) -> None:
    settings = read_service_settings({"TIDEQ_ALLOWED_HOSTS": "Tideq.Example, other"})
    service.authenticator._allowed_hosts = settings.allowed_hosts  # pyright: ignore[reportPrivateUsage]

    by_name = await http.get("/api/v1/queue/stats", headers={"Host": "tideq.example:443"})
    page = {"Host": "127.0.0.1:8080", "Origin": "https://tideq.example"}
    from_page = await http.post("/api/v1/tasks", json=TASK, headers=page)

    assert (by_name.status_code, from_page.status_code) == (200, 201)


@pytest.mark.parametrize("wrong", ["https://a.example", "*.example", "a:80"])
def test_a_wrong_name_is_named_at_start(wrong: str) -> None:
    with pytest.raises(SettingsError, match="TIDEQ_ALLOWED_HOSTS"):
        read_service_settings({"TIDEQ_ALLOWED_HOSTS": wrong})
