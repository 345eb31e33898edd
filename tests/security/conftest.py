"""The service as the API's own suite starts it; and once a session all programs, each as the user that ships for it."""

from collections.abc import Iterator

import pytest

from tests.api import conftest as api
from tests.security.guarded import Guarded, Programs, guarded_stores, programs_on, run

auth, queue_name = api.auth, api.queue_name
has_history, history_settings = api.has_history, api.history_settings
service, seats, http, kit, bench = api.service, api.seats, api.http, api.kit, api.bench
server_settings, server = api.server_settings, api.server


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_stores(tmp_path_factory.mktemp("guarded")) as guarded:
        guarded.apply_roles()
        run(guarded.settings("migrate", REDIS_URL=guarded.redis_url("api")), "migrate")
        guarded.apply_roles()
        yield guarded


@pytest.fixture(scope="session")
def programs(stores: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    with programs_on(stores, tmp_path_factory.mktemp("programs")) as running:
        yield running


@pytest.fixture(scope="session")
def key(stores: Guarded) -> str:
    return run(stores.settings("api"), "keys", "create", "boss", "--role", "admin")
