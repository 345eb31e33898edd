"""Everything that calls the service from outside asks for what it has, with a key that may."""

from urllib.parse import SplitResult, parse_qs, urlsplit

import pytest
from litestar.handlers import BaseRouteHandler
from litestar.routes import HTTPRoute

from tests.helm.chart import Json, container, name_of, of_kind, one, rendered
from tideq.api.app import litestar_app
from tideq.api.edge.auth import allowed_roles
from tideq.api.edge.middleware import query_names
from tideq.api.operations import PUBLIC
from tideq.api.schemas.queue import BacklogOut
from tideq.api.service import offline_service


@pytest.fixture(scope="module")
def routes() -> dict[str, BaseRouteHandler]:
    """By path, what answers a GET."""
    app = litestar_app(offline_service())
    return {
        route.path_format: handler
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        if "GET" in handler.http_methods
    }


def _trigger(scaled: Json) -> Json:
    (trigger,) = scaled["spec"]["triggers"]
    return trigger


def _asked(trigger: Json) -> SplitResult:
    return urlsplit(str(trigger["metadata"]["url"]))


def test_keda_asks_a_call_the_service_has_with_a_key_that_may(routes: dict[str, BaseRouteHandler]) -> None:
    objects = rendered("keda")
    credentials = one(objects, "TriggerAuthentication")

    for scaled in of_kind(objects, "ScaledObject"):
        trigger = _trigger(scaled)
        asked = _asked(trigger)
        assert asked.netloc == "tide-tideq-api.harbour.svc:8080", name_of(scaled)
        assert parse_qs(asked.query).keys() <= query_names(routes[asked.path]), name_of(scaled)
        assert trigger["metadata"]["valueLocation"] in BacklogOut.__struct_fields__
        assert credentials["spec"]["secretTargetRef"][0]["key"] in allowed_roles(routes[asked.path])
        assert trigger["authenticationRef"]["name"] == credentials["metadata"]["name"]


def test_a_set_is_scaled_by_what_its_workers_could_take() -> None:
    triggers = {scaled["metadata"]["name"]: _trigger(scaled) for scaled in of_kind(rendered("keda"), "ScaledObject")}
    any_set, gpu_set = triggers["tide-tideq-worker-any"], triggers["tide-tideq-worker-gpu"]

    assert _asked(any_set).query == ""
    assert any_set["metadata"]["targetValue"] == "10"
    assert parse_qs(_asked(gpu_set).query) == {"task_type": ["detect", "segment"], "capability": ["gpu"]}
    assert gpu_set["metadata"]["targetValue"] == "1"


def test_prometheus_asks_with_a_key_that_may(routes: dict[str, BaseRouteHandler]) -> None:
    (endpoint,) = one(rendered("ha"), "ServiceMonitor")["spec"]["endpoints"]
    service = one(rendered("ha"), "Service", "-api")

    assert endpoint["authorization"]["credentials"]["key"] in allowed_roles(routes[endpoint["path"]])
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_probes_of_the_api_need_no_key(routes: dict[str, BaseRouteHandler]) -> None:
    program = container(rendered(), "-api")

    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert PUBLIC in allowed_roles(routes[program[probe]["httpGet"]["path"]])


def test_pods_scraped_by_themselves_have_the_port() -> None:
    spec = one(rendered("ha"), "PodMonitor")["spec"]
    (expression,) = spec["selector"]["matchExpressions"]

    for role in expression["values"]:
        names = {port["name"] for port in container(rendered("ha"), f"-{role}")["ports"]}
        assert spec["podMetricsEndpoints"][0]["port"] in names
