"""Off unless a collector is named, as OpenTelemetry's own variables say; and off costs not even an import."""

import socket
import subprocess
import sys

import pytest

from tests.api.running import tideq
from tideq.queue_core.settings import SettingsError
from tideq.telemetry.setup import is_traced, make_resource, make_tracing

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
IMPORTS = """
import sys
import {modules}
print([name for name in sys.modules if name.startswith(({unwanted}))])
"""


@pytest.mark.parametrize(
    ("environ", "is_on"),
    [
        ({}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, True),
    ],
)
def test_it_is_on_where_a_collector_is_named(environ: dict[str, str], is_on: bool) -> None:
    assert is_traced(environ) == is_on


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        ("tideq.cli.worker, tideq.application.decorator", '"opentelemetry",'),
        (
            "tideq.cli.up, tideq.cli.serve, tideq.cli.monitor",
            '"opentelemetry.exporter", "tideq.telemetry.otel_tracing"',
        ),
    ],
    ids=["worker", "service"],
)
def test_a_process_that_traces_nothing_imports_nothing(modules: str, unwanted: str) -> None:
    """The store's driver imports parts of OpenTelemetry wherever it is installed; a worker has no such driver."""
    code = IMPORTS.format(modules=modules, unwanted=unwanted)

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"}, "carrier-pigeon"),
        ({"OTEL_TRACES_EXPORTER": "nowhere"}, "nowhere"),
    ],
)
def test_an_exporter_that_is_not_there_is_named(environ: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        make_tracing({**ENDPOINT, **environ}, 100, "tideq")


def test_it_is_named_in_one_line_at_start() -> None:
    ended = tideq({"REDIS_URL": "redis://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "nowhere", "TIDEQ_PORT": "0"}, "serve")

    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "nowhere" in ended.stderr


def test_what_the_environment_says_of_the_service_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_resource("tideq").attributes["service.name"] == "tideq"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")

    told = make_resource("tideq").attributes

    assert (told["service.name"], told["deployment.environment"]) == ("orders", "test")


def test_a_name_that_spans_are_told_under_goes_before_the_process_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "tideq-monitor")

    told = make_resource("tideq", is_fixed=True).attributes

    assert (told["service.name"], told["host.name"]) == ("tideq", socket.gethostname())


def test_the_host_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=node-1")

    assert make_resource("tideq").attributes["host.name"] == "node-1"
