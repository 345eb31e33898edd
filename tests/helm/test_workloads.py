"""What every pod of every scenario must be, and numbers that must be the program's own."""

import itertools
import re

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
from tideq.api.schemas.base import MAX_WAIT_SECONDS
from tideq.api.server import GRACE_SECONDS
from tideq.workers.runtime.health import MAX_REQUEST_SECONDS
from tideq.workers.runtime.worker_process import EXIT_SECONDS

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS)
ROLES = ("api", "monitor", "replicator", "worker-")
MUTABLE = ("app.kubernetes.io/version", "helm.sh/chart", "team")


def _pod(objects: list[Json], kind: str, ends_with: str) -> Json:
    return one(objects, kind, ends_with)["spec"]["template"]["spec"]


@each_scenario
def test_every_pod_meets_the_restricted_standard(scenario: str) -> None:
    for name, spec in pod_specs(rendered(scenario)):
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for each in containers(spec):
            security = each["securityContext"]
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["readOnlyRootFilesystem"] is True, name
            assert security["capabilities"] == {"drop": ["ALL"]}, name


@each_scenario
def test_every_pod_limits_its_memory_to_what_it_requests(scenario: str) -> None:
    for name, spec in pod_specs(rendered(scenario)):
        for each in containers(spec):
            resources = each["resources"]
            assert resources["limits"]["memory"] == resources["requests"]["memory"], name


@each_scenario
def test_no_pod_is_given_a_token_or_variables_named_after_services(scenario: str) -> None:
    """A Service called tideq-api would bring TIDEQ_API_PORT, which the program refuses as an unknown setting."""
    for name, spec in pod_specs(rendered(scenario)):
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, name


@each_scenario
def test_no_role_is_the_first_process_of_its_container_which_would_lose_signals_while_it_starts(scenario: str) -> None:
    roles = [each for each in of_kind(rendered(scenario), "Deployment") if component(each).startswith(ROLES)]

    assert len(roles) >= 3
    for each in roles:
        assert each["spec"]["template"]["spec"]["shareProcessNamespace"] is True, name_of(each)


@each_scenario
def test_everything_is_put_into_the_release_namespace_and_says_whose_it_is(scenario: str) -> None:
    for each in rendered(scenario):
        assert each["metadata"]["namespace"] == "harbour", name_of(each)
        if not each["metadata"]["name"].endswith("-more"):
            assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "tide", name_of(each)


@each_scenario
def test_selectors_find_their_pods_and_hold_nothing_that_may_change(scenario: str) -> None:
    for each in of_kind(rendered(scenario), "Deployment", "StatefulSet"):
        selector = each["spec"]["selector"]["matchLabels"]
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert selector.items() <= labels.items(), name_of(each)
        assert not set(selector) & set(MUTABLE), name_of(each)


@each_scenario
def test_policies_services_and_budgets_select_pods_that_exist(scenario: str) -> None:
    objects = rendered(scenario)
    made = {component(each) for each in of_kind(objects, "Deployment", "StatefulSet", "Job", "Pod")}

    for each in of_kind(objects, "NetworkPolicy", "Service", "PodDisruptionBudget"):
        selector = each["spec"].get("podSelector") or each["spec"]["selector"]
        selected = (selector.get("matchLabels") or selector)["app.kubernetes.io/component"]
        assert selected in made, name_of(each)


def test_with_policies_on_every_pod_has_one() -> None:
    for scenario in SCENARIOS:
        objects = rendered(scenario)
        policies = {component(each) for each in of_kind(objects, "NetworkPolicy")}
        made = {component(each) for each in of_kind(objects, "Deployment", "StatefulSet", "Job", "Pod")}
        assert policies in (made, set()), scenario


def test_the_api_has_time_to_finish_what_is_under_way() -> None:
    spec = _pod(rendered(), "Deployment", "-api")
    sleep = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]

    assert sleep == 5
    assert spec["terminationGracePeriodSeconds"] == sleep + GRACE_SECONDS + 10


@pytest.mark.parametrize(("worker_set", "drain"), [("images", 300), ("mail", 30)])
def test_a_worker_has_time_to_drain(worker_set: str, drain: int) -> None:
    spec = _pod(rendered("ha"), "Deployment", f"-worker-{worker_set}")
    command = spec["containers"][0]["command"]

    assert command[command.index("--drain-seconds") + 1] == str(drain)
    assert spec["terminationGracePeriodSeconds"] == drain + EXIT_SECONDS + 10


def test_routes_wait_longer_than_a_long_poll_and_for_ever_for_events() -> None:
    rules = one(rendered("gateway"), "HTTPRoute")["spec"]["rules"]
    timeouts = {rule["matches"][0]["path"]["value"]: rule["timeouts"]["request"] for rule in rules}

    assert timeouts["/api/v1/events"] == "0s"
    assert int(timeouts["/"].removesuffix("s")) > MAX_WAIT_SECONDS


@pytest.mark.parametrize("role", ["-api", "-monitor", "-replicator", "-worker-images"])
def test_only_a_page_that_asks_nothing_of_the_stores_restarts_a_pod(role: str) -> None:
    program = container(rendered("ha"), role)

    assert program["livenessProbe"]["httpGet"]["path"] == program["startupProbe"]["httpGet"]["path"] == "/livez"
    assert program["readinessProbe"]["httpGet"]["path"] == ("/readyz" if role == "-api" else "/health")
    assert {program[probe]["httpGet"]["port"] for probe in ("livenessProbe", "startupProbe", "readinessProbe")} == {
        program["ports"][0]["name"]
    }
    assert program["livenessProbe"]["timeoutSeconds"] >= MAX_REQUEST_SECONDS


def test_the_api_and_all_who_keep_its_stores_wait_for_the_schema_and_workers_do_not() -> None:
    waiting = {
        component(each)
        for each in of_kind(rendered("ha"), "Deployment")
        if any(init["name"] == "wait-for-schema" for init in each["spec"]["template"]["spec"].get("initContainers", ()))
    }

    assert waiting == {"api", "monitor", "replicator"}


def test_an_outage_of_any_length_ends_no_container_that_waits_for_the_schema() -> None:
    """One that gives up is begun again by the kubelet, minutes later each time, and late when the database is back."""
    for each in of_kind(rendered("ha", migrations={"waitSeconds": 1}), "Deployment"):
        for init in each["spec"]["template"]["spec"].get("initContainers", ()):
            command = init["command"]
            assert command[command.index("--wait") + 1] == "inf", component(each)


@pytest.mark.parametrize(("scenario", "scaled"), [("default", 0), ("ha", 2), ("keda", 2)])
def test_who_is_scaled_has_no_count_of_its_own(scenario: str, scaled: int) -> None:
    objects = rendered(scenario)
    scalers = of_kind(objects, "HorizontalPodAutoscaler", "ScaledObject")
    targets = {each["spec"]["scaleTargetRef"]["name"] for each in scalers}

    without = {each["metadata"]["name"] for each in of_kind(objects, "Deployment") if "replicas" not in each["spec"]}
    assert without == targets
    assert len(targets) == scaled


def test_budgets_are_made_for_more_than_one_pod_only() -> None:
    by_scenario = {
        scenario: {component(each) for each in of_kind(rendered(scenario), "PodDisruptionBudget")}
        for scenario in ("default", "ha", "keda", "gateway")
    }

    assert by_scenario == {
        "default": {"api"},
        "ha": {"api", "monitor", "replicator", "worker-images", "worker-mail"},
        "keda": {"api", "worker-gpu"},
        "gateway": set(),
    }


def test_the_migration_is_an_ordinary_object_whose_name_follows_its_content() -> None:
    jobs = {
        name: one(rendered(scenario, **values), "Job")
        for name, scenario, values in (
            ("default", "default", {}),
            ("again", "default", {"api": {"replicas": 3}}),
            ("new image", "default", {"image": {"tag": "9"}}),
            ("new keys", "default", {"auth": {"revision": "2"}}),
        )
    }
    names = {what: job["metadata"]["name"] for what, job in jobs.items()}

    assert "annotations" not in jobs["default"]["metadata"], "a hook would wait for what waits for it"
    assert names["default"] == names["again"]
    assert len(set(names.values())) == 3


def test_the_migration_can_be_left_to_the_operator() -> None:
    assert of_kind(rendered("default", migrations={"mode": "none"}), "Job") == []


@each_scenario
def test_images_come_from_the_registry_that_was_chosen(scenario: str) -> None:
    images = {each["image"] for _, spec in pod_specs(rendered(scenario)) for each in containers(spec)}
    prefix = "mirror.example.org/" if scenario == "hardened" else ""

    for image in images:
        assert re.fullmatch(rf"{prefix}[a-z]+(/[a-z]+)?(:[\w.]+|@sha256:[0-9a-f]{{64}})", image), image


def test_what_users_may_add_reaches_every_role() -> None:
    objects = rendered("hardened")
    for each in of_kind(objects, "Deployment"):
        template = each["spec"]["template"]
        program = template["spec"]["containers"][0]
        variables = {variable["name"] for variable in program["env"]}
        assert {"LANG", "TZ"} <= variables, name_of(each)
        assert {"name": "more", "mountPath": "/more"} in program["volumeMounts"], name_of(each)
        assert template["metadata"]["annotations"]["example.org/owner"] == "tides", name_of(each)
        assert template["metadata"]["labels"]["example.org/tier"] == "backend", name_of(each)
        assert template["spec"]["priorityClassName"] == "important", name_of(each)
        assert "nodeAffinity" in template["spec"]["affinity"], name_of(each)
        assert "topologySpreadConstraints" not in template["spec"], name_of(each)


def test_a_change_of_settings_or_stores_rolls_the_pods() -> None:
    def checksums(**values: object) -> tuple[str, str]:
        annotations = one(rendered("default", **values), "Deployment", "-api")["spec"]["template"]["metadata"]
        return annotations["annotations"]["checksum/settings"], annotations["annotations"]["checksum/stores"]

    seen = [checksums(), checksums(settings={"TIDEQ_DEPTH_REFUSE_LOW": 7}), checksums(auth={"revision": "2"})]

    assert checksums() == seen[0]
    assert all(one != other for one, other in itertools.combinations(seen, 2))


def test_falsy_values_of_a_role_replace_the_defaults() -> None:
    objects = rendered("ha", monitor={"replicas": 0, "pdb": {"enabled": False}, "priorityClassName": ""})

    assert one(objects, "Deployment", "-monitor")["spec"]["replicas"] == 0
    assert "monitor" not in {component(each) for each in of_kind(objects, "PodDisruptionBudget")}
