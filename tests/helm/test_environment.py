"""Every variable the chart sets is one its program reads, and comes from where the values say."""

import pytest

from tests.helm.chart import (
    SCENARIOS,
    Json,
    component,
    container,
    containers,
    name_of,
    of_kind,
    one,
    pod_specs,
    rendered,
)
from tideq.api.settings import read_service_settings
from tideq.queue_core.settings import SettingsError

OUTSIDE = {
    "POD_NAME",
    "POD_IP",
    "NODE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
    "LANG",
    "TZ",
}
"""Not ours: used in other variables, read by OpenTelemetry, or given by the user of a scenario."""
STORES = {"REDIS_URL", "DATABASE_URL"}
CALLER = {"TIDEQ_URL", "TIDEQ_API_KEY"}
OURS = ("api", "monitor", "replicator", "migration", "smoke", "worker-")
each_scenario = pytest.mark.parametrize("scenario", SCENARIOS)


@each_scenario
def test_the_program_knows_every_variable_it_is_given(scenario: str) -> None:
    objects = rendered(scenario)
    settings: dict[str, str] = one(objects, "ConfigMap", "-settings")["data"] or {}
    checked = 0

    for name, spec in pod_specs(objects):
        for each in (program for program in containers(spec) if program.get("command", [""])[0] == "tideq"):
            given = {key: value for key, value in _variables(each).items() if key not in OUTSIDE}
            checked += 1
            if each["command"][1] in ("worker", "smoke"):
                assert given.keys() == CALLER, name
            else:
                assert {key for key in given if not key.startswith("TIDEQ_")} <= STORES, name
                read_service_settings({**settings, **given})

    assert checked >= 9


@each_scenario
def test_no_process_has_another_name_in_traces_than_it_has_by_default(scenario: str) -> None:
    named = [
        (name, each["name"])
        for name, spec in pod_specs(rendered(scenario))
        for each in containers(spec)
        if "OTEL_SERVICE_NAME" in _variables(each)
    ]

    assert named == []


def test_a_variable_the_program_does_not_know_would_be_noticed() -> None:
    with pytest.raises(SettingsError, match="TIDEQ_PROT"):
        read_service_settings({"TIDEQ_PROT": "8080"})


def test_settings_reach_the_service_as_they_were_written() -> None:
    objects = rendered("ha")
    settings = one(objects, "ConfigMap", "-settings")["data"]

    read = read_service_settings(settings)

    assert read.queue.admission.soft_depth == 2_000_000
    assert read.queue.admission.listed_clients == ("billing",)
    assert read.history.retention_ms == 30 * 86_400_000
    assert settings["TIDEQ_LOG_TRANSITIONS"] == "off"
    for name in ("-api", "-monitor", "-replicator"):
        assert container(objects, name)["envFrom"] == [{"configMapRef": {"name": "tide-tideq-settings"}}]


def test_probes_go_where_the_operator_allows() -> None:
    variables = {each["name"]: each.get("value") for each in container(rendered("ha"), "-monitor")["env"]}

    assert variables["TIDEQ_PROBE_ALLOWED_CIDRS"] == "10.0.0.0/8"


@pytest.mark.parametrize(
    ("scenario", "redis", "postgres"),
    [
        ("default", ("tide-tideq-stores", "redis-url"), ("tide-tideq-stores", "postgres-url")),
        ("ha", ("tideq-redis", "url"), ("tideq-postgres", "url")),
        ("tls", ("tide-tideq-stores", "redis-url"), ("tideq-postgres", "uri")),
        ("sentinel", ("tide-tideq-stores", "redis-url"), ("tide-tideq-stores", "postgres-url")),
    ],
)
def test_stores_are_where_the_values_say(scenario: str, redis: tuple[str, str], postgres: tuple[str, str]) -> None:
    objects = rendered(scenario)

    for role in ("-api", "-monitor", "-replicator"):
        variables = {each["name"]: each for each in container(objects, role)["env"]}
        for name, expected in (("REDIS_URL", redis), ("DATABASE_URL", postgres)):
            source = variables[name]["valueFrom"]["secretKeyRef"]
            assert (source["name"], source["key"]) == expected


@each_scenario
def test_every_entry_a_pod_reads_from_a_secret_of_the_release_is_there(scenario: str) -> None:
    objects = rendered(scenario)
    secrets = {
        each["metadata"]["name"]: {**each.get("data", {}), **each.get("stringData", {})}
        for each in of_kind(objects, "Secret")
    }

    for name, spec in pod_specs(objects):
        for each in containers(spec):
            for variable in each.get("env", ()):
                source = variable.get("valueFrom", {}).get("secretKeyRef")
                if source and source["name"] in secrets:
                    assert source["key"] in secrets[source["name"]], name


@each_scenario
def test_no_setting_of_ours_is_given_to_what_is_not_ours(scenario: str) -> None:
    for each in of_kind(rendered(scenario), "Deployment", "StatefulSet", "Job"):
        if not component(each).startswith(OURS):
            for program in containers(each["spec"]["template"]["spec"]):
                assert not any(key.startswith("TIDEQ_") for key in _variables(program)), name_of(each)


def _variables(program: Json) -> dict[str, str]:
    """Those from a Secret with something in their place."""
    return {each["name"]: each.get("value", "x") for each in program.get("env", ())}
