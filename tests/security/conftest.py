"""The service as the API's own suite starts it."""

from tests.api import conftest as api

auth, queue_name = api.auth, api.queue_name
has_history, history_settings = api.has_history, api.history_settings
service, http, kit, bench = api.service, api.http, api.kit, api.bench
server_settings, server = api.server_settings, api.server
