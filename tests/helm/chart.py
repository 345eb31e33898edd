"""Rendering the chart, and finding one's way in what comes out."""

import functools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.tools import find

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm"
SCENARIOS = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
KUBERNETES = "1.35.0"
RELEASE, NAMESPACE = "tide", "harbour"
HELM = find("helm")
NO_HELM = "no helm: `make tools` fetches one"
CORE = ("v1", "apps/v1", "batch/v1", "policy/v1", "autoscaling/v2", "networking.k8s.io/v1")

Json = dict[str, Any]
Values = dict[str, Any]


def helm(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Ends by itself, within two minutes."""
    assert HELM is not None, NO_HELM
    command = [str(HELM), *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)


def values_file(scenario: str) -> Path:
    return CHART / "ci" / f"{scenario}-values.yaml"


def template(*options: str) -> subprocess.CompletedProcess[str]:
    return helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", KUBERNETES, *options)


@functools.cache
def rendered_text(scenario: str = "default", values: str = "{}") -> str:
    """`values`, as JSON, go over those of the scenario."""
    done = template("--values", str(values_file(scenario)), *_settings(values))
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(scenario: str = "default", **values: Any) -> list[Json]:
    """Not to be changed: others are given the same."""
    return _parsed(scenario, json.dumps(values))


@functools.cache
def _parsed(scenario: str, values: str) -> list[Json]:
    # The parser in C, where there is one: this is half of what the suite would cost.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(rendered_text(scenario, values), loader) if document]


def refusal(scenario: str = "default", **values: Any) -> str:
    """What Helm says instead of rendering, in one line."""
    done = template("--values", str(values_file(scenario)), *_settings(json.dumps(values)))
    assert done.returncode != 0, "it was rendered"
    return " ".join(done.stderr.split())


def one(objects: list[Json], kind: str, ends_with: str = "") -> Json:
    (found,) = [each for each in of_kind(objects, kind) if each["metadata"]["name"].endswith(ends_with)]
    return found


def of_kind(objects: list[Json], *kinds: str) -> list[Json]:
    return [each for each in objects if each["kind"] in kinds]


def name_of(found: Json) -> str:
    return f"{found['kind']}/{found['metadata']['name']}"


def pod_specs(objects: list[Json]) -> Iterator[tuple[str, Json]]:
    """Of everything that makes pods, the test included."""
    for each in objects:
        if each["kind"] == "Pod":
            yield name_of(each), each["spec"]
        elif each["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield name_of(each), each["spec"]["template"]["spec"]


def containers(spec: Json) -> list[Json]:
    return [*spec.get("initContainers", ()), *spec["containers"]]


def container(objects: list[Json], ends_with: str) -> Json:
    """The program of a Deployment."""
    return one(objects, "Deployment", ends_with)["spec"]["template"]["spec"]["containers"][0]


def component(found: Json) -> str:
    return found["metadata"]["labels"]["app.kubernetes.io/component"]


def _settings(values: str) -> list[str]:
    return [
        part for name, value in json.loads(values).items() for part in ("--set-json", f"{name}={json.dumps(value)}")
    ]
