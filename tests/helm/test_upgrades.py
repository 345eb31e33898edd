"""What the manifests of an install and of an upgrade show of a release's life.

They do not show that `lookup` finds the Secrets of the release: Helm looks things up only in a real cluster.
"""

import json
from collections.abc import Iterator

import pytest
import yaml

from tests.helm.chart import (
    SCENARIOS,
    Json,
    component,
    container,
    name_of,
    of_kind,
    one,
    pod_specs,
    rendered,
    template,
    values_file,
)

MADE_BY_THE_OPERATOR = {
    "Secret/tideq-keys",
    "Secret/tideq-redis",
    "Secret/tideq-postgres",
    "Secret/stores-ca",
    "Secret/mirror",
    "ConfigMap/my-handlers",
    "ServiceAccount/tideq",
    "ServiceAccount/default",
}
"""What the scenarios name of somebody else's."""


def _upgraded(scenario: str, *options: str) -> list[Json]:
    done = template("--is-upgrade", "--values", str(values_file(scenario)), *options)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def _named_by(spec: Json) -> Iterator[str]:
    """Everything a pod cannot start without."""
    yield f"ServiceAccount/{spec.get('serviceAccountName', 'default')}"
    for each in spec.get("imagePullSecrets", ()):
        yield f"Secret/{each['name']}"
    for volume in spec.get("volumes", ()):
        for source in (volume, *volume.get("projected", {}).get("sources", ())):
            if "secret" in source:
                yield f"Secret/{source['secret'].get('secretName') or source['secret']['name']}"
            if "configMap" in source:
                yield f"ConfigMap/{source['configMap']['name']}"
    for each in (*spec.get("initContainers", ()), *spec["containers"]):
        for source in each.get("envFrom", ()):
            yield from (f"{kind[0].upper()}{kind[1:-3]}/{told['name']}" for kind, told in source.items())
        for variable in each.get("env", ()):
            for kind, told in variable.get("valueFrom", {}).items():
                if kind in ("secretKeyRef", "configMapKeyRef"):
                    yield f"{kind[0].upper()}{kind[1:-6]}/{told['name']}"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_pod_names_only_what_the_chart_or_the_operator_makes(scenario: str) -> None:
    objects = rendered(scenario)
    made = {name_of(each) for each in objects} | MADE_BY_THE_OPERATOR

    for name, spec in pod_specs(objects):
        assert set(_named_by(spec)) <= made, name


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_only_the_test_is_a_hook_of_an_install(scenario: str) -> None:
    hooks = {
        annotations["helm.sh/hook"]: component(each)
        for each in rendered(scenario)
        if "helm.sh/hook" in (annotations := each["metadata"].get("annotations", {}))
    }

    assert hooks == {"test": "smoke"}


def test_a_hook_migrates_before_an_upgrade_and_leaves_nothing_behind() -> None:
    annotations = one(_upgraded("gateway"), "Job")["metadata"]["annotations"]

    assert annotations["helm.sh/hook"] == "pre-upgrade"
    assert set(annotations["helm.sh/hook-delete-policy"].split(",")) == {"before-hook-creation", "hook-succeeded"}


def test_a_release_with_its_own_stores_migrates_by_an_ordinary_job_of_a_new_image_and_back() -> None:
    first, again = (one(objects, "Job")["metadata"] for objects in (rendered(), _upgraded("default")))
    upgraded = _upgraded("default", "--set", "image.tag=next")

    assert again == first, "a rollback brings the old migration back"
    assert "annotations" not in one(upgraded, "Job")["metadata"]
    assert one(upgraded, "Job")["metadata"]["name"] != first["name"]
    assert container(upgraded, "-api")["image"].endswith(":next")
    assert not container(rendered(), "-api")["image"].endswith(":next")


def test_keys_and_passwords_made_once_are_left_behind_by_an_uninstall() -> None:
    kept = {
        each["metadata"]["name"]
        for each in rendered()
        if each["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }

    assert {"tide-tideq-keys", "tide-tideq-stores"} <= kept
    assert set(one(rendered(), "Secret", "-keys")["data"]) == {"admin", "producer", "worker", "viewer"}


def test_an_upgrade_changes_no_selector_which_kubernetes_would_refuse() -> None:
    for scenario in SCENARIOS:
        more = json.dumps({"shift": "night"})
        upgraded = _upgraded(scenario, "--set", "image.tag=next", "--set-json", f"commonLabels={more}")
        for before in of_kind(rendered(scenario), "Deployment", "StatefulSet"):
            after = one(upgraded, before["kind"], before["metadata"]["name"])
            assert after["metadata"]["labels"]["shift"] == "night", name_of(after)
            assert after["spec"]["selector"] == before["spec"]["selector"], name_of(after)
