"""Every scenario lints, renders, and is what Kubernetes and its extensions take."""

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.helm.chart import (
    CHART,
    CORE,
    KUBERNETES,
    SCENARIOS,
    helm,
    name_of,
    one,
    rendered,
    rendered_text,
    values_file,
)
from tests.tools import find

SCHEMAS = Path(__file__).parent / "schemas"
each_scenario = pytest.mark.parametrize("scenario", SCENARIOS)

ACCEPTED = {
    "CKV_K8S_43": ("", "images by digest are for the operator to choose: image.digest"),
    "CKV_K8S_15": ("", "so is pulling one that is there already: image.pullPolicy"),
    "CKV_K8S_11": ("", "no processor limits: a throttled API answers late, a throttled worker holds leases longer"),
    "CKV_K8S_35": ("", "keys and URLs as variables: that is what the program reads"),
    "CKV_K8S_40": ("StatefulSet.", "the bundled stores run as the users their images were made for"),
    "CKV_K8S_8": ("-smoke", "the test runs once: there is nothing to restart"),
    "CKV_K8S_9": ("-smoke", "and nobody to send to it"),
}
"""What checkov would like and the chart does not do: of which objects, and why."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every scenario rendered, a file each."""
    folder = tmp_path_factory.mktemp("rendered")
    made = [folder / f"{scenario}.yaml" for scenario in SCENARIOS]
    for file in made:
        file.write_text(rendered_text(file.stem))
    return made


@each_scenario
def test_a_scenario_lints_strictly(scenario: str) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", str(values_file(scenario)), "--kube-version", KUBERNETES)

    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


def test_kubernetes_takes_every_scenario(files: list[Path]) -> None:
    program = find("kubernetes-validate")
    if program is None:
        pytest.skip("no kubernetes-validate: `make tools` fetches it")

    done = _run(program, "--strict", "--quiet", "--no-warn", "-k", KUBERNETES.rpartition(".")[0], *map(str, files))

    assert done.returncode == 0, done.stdout + done.stderr


@each_scenario
def test_extensions_take_what_is_made_for_them(scenario: str) -> None:
    for each in rendered(scenario):
        if each["apiVersion"] not in CORE:
            jsonschema.validate(each, _schema(each["kind"]))


def test_every_extension_has_a_scenario() -> None:
    made = {each["kind"] for scenario in SCENARIOS for each in rendered(scenario) if each["apiVersion"] not in CORE}

    assert made == {path.stem for path in SCHEMAS.glob("*.json")}


@each_scenario
def test_names_are_unique_and_short_enough_for_labels(scenario: str) -> None:
    names = [name_of(each) for each in rendered(scenario)]

    assert len(names) == len(set(names))
    assert all(len(name.partition("/")[2]) <= 63 for name in names)


def test_alerts_and_dashboards_are_the_files_word_for_word() -> None:
    objects = rendered("ha")

    assert one(objects, "PrometheusRule")["spec"] == yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    for file in (CHART / "files").glob("dashboard*.json"):
        told: str = one(objects, "ConfigMap", f"-{file.stem}")["data"][file.name]
        assert json.loads(told) == json.loads(file.read_text())


def test_alerts_lead_to_the_operators_own_runbook() -> None:
    objects = rendered("ha", metrics={"rules": {"enabled": True, "runbookUrl": "https://wiki.example.com/queue"}})

    groups = one(objects, "PrometheusRule")["spec"]["groups"]
    links = [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]]
    assert len(links) > 30
    assert {link.partition("#")[0] for link in links} == {"https://wiki.example.com/queue"}


def test_checkov_finds_nothing_but_what_is_accepted(files: list[Path]) -> None:
    program = find("checkov")
    if program is None:
        pytest.skip("no checkov: `make tools` fetches it")
    options = ("--framework", "kubernetes", "--compact", "--quiet", "--skip-download", "--output", "json")

    done = _run(program, *options, "--directory", str(files[0].parent))

    failed = _failed_checks(json.loads(done.stdout))
    assert [check for check in failed if not _is_accepted(check)] == []
    assert {check["check_id"] for check in failed} == ACCEPTED.keys(), "the list is longer than it has to be"


def _is_accepted(check: dict[str, Any]) -> bool:
    whose, _ = ACCEPTED.get(check["check_id"], (None, ""))
    return whose is not None and whose in check["resource"]


def _failed_checks(report: Any) -> list[dict[str, Any]]:
    assert report["summary"]["passed"] > 100, "checkov looked at next to nothing"
    return [
        {name: check[name] for name in ("check_id", "check_name", "resource")}
        for check in report["results"]["failed_checks"]
    ]


def _schema(kind: str) -> Any:
    return json.loads((SCHEMAS / f"{kind}.json").read_text())


def _run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=200, check=False)
