"""Helm itself, against a stand-in for the API server: install, upgrade, test, roll back, uninstall.

The stand-in lets pods become ready only when all they refer to is there and the migration they wait for has completed,
so a release that waits for itself never becomes ready here either.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helm.chart import CHART, NAMESPACE, RELEASE, Json, helm, values_file
from tests.helm.cluster.server import Cluster, cluster

ROLES = ("admin", "producer", "worker", "viewer")
SCENARIO_SECRETS = {
    "tideq-keys": ROLES,
    "tideq-redis": ("url",),
    "tideq-postgres": ("url",),
    "stores-ca": ("ca.crt",),
    "mirror": (".dockerconfigjson",),
}
"""What the scenarios expect the operator to have made."""


class Release:
    def __init__(self, running: Cluster, home: Path) -> None:
        self.cluster = running
        self._home = home
        kubeconfig = home / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(running.url)))
        self._environ = {"KUBECONFIG": str(kubeconfig), "HOME": str(home)}

    def run(self, verb: str, *options: str) -> str:
        done = self.try_to(verb, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def try_to(self, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        return helm(verb, RELEASE, *options, "--namespace", NAMESPACE, **self._environ)

    def install(self, *options: str) -> str:
        return self.run("install", str(CHART), "--wait", "--wait-for-jobs", "--timeout", "30s", *options)

    def upgrade(self, *options: str) -> str:
        return self.run("upgrade", str(CHART), "--wait", "--wait-for-jobs", "--timeout", "30s", *options)

    def keys(self) -> Json:
        return self.cluster.find("Secret", "-keys")["data"]

    def migrations(self) -> set[str]:
        return self.cluster.names("Job")


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Release]:
    with cluster(NAMESPACE) as running:
        yield Release(running, tmp_path)


def _kubeconfig(url: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    }


def _prepare(running: Cluster) -> None:
    """As an operator would before the scenarios with stores of their own."""
    running.create("ServiceAccount", NAMESPACE, "tideq")
    running.create("ConfigMap", NAMESPACE, "my-handlers", data={"tasks.py": ""})
    for name, entries in SCENARIO_SECRETS.items():
        running.create("Secret", NAMESPACE, name, data=dict.fromkeys((*entries, "uri"), "eA=="))


def test_a_release_lives_from_install_to_uninstall(release: Release) -> None:
    notes = release.install()
    first_keys, first_migrations = release.keys(), release.migrations()

    assert f"helm test {RELEASE}" in notes
    assert "Nobody does any work yet" in notes
    assert {name.rpartition("-")[2] for name in release.cluster.names("Deployment")} == {"api", "monitor", "replicator"}
    assert set(first_keys) == set(ROLES)

    release.upgrade("--set", "image.tag=next")
    assert release.keys() == first_keys, "an upgrade must not change the keys people hold"
    assert len(release.migrations()) == 1
    assert release.migrations() != first_migrations, "a new image brings a new migration"

    assert "Succeeded" in release.run("test")

    release.run("rollback", "1", "--wait", "--wait-for-jobs", "--timeout", "30s")
    assert release.migrations() == first_migrations
    image = release.cluster.find("Deployment", "-api")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert not image.endswith(":next")

    release.run("uninstall", "--wait", "--timeout", "30s")
    assert release.cluster.names("Deployment") == release.cluster.names("StatefulSet") == set()
    assert {name.rpartition("-")[2] for name in release.cluster.names("Secret")} == {"keys", "stores"}

    release.install()
    assert release.keys() == first_keys, "what was kept is found again"


def test_workers_that_an_extension_scales_become_ready(release: Release) -> None:
    _prepare(release.cluster)

    release.install("--values", str(values_file("keda")))

    assert release.cluster.names("ScaledObject") == {"tide-tideq-worker-any", "tide-tideq-worker-gpu"}


def test_a_hook_migrates_before_an_upgrade_and_an_ordinary_job_with_the_install(release: Release) -> None:
    options = ("--values", str(values_file("gateway")))
    release.install(*options)
    assert len(release.migrations()) == 1

    release.upgrade(*options, "--set", "image.tag=next")

    assert release.migrations() == set(), "a hook that succeeded leaves nothing behind"


def test_a_count_somebody_scaled_to_survives_an_upgrade(release: Release) -> None:
    _prepare(release.cluster)
    options = ("--values", str(values_file("ha")))
    release.install(*options)
    _scale(release.cluster, "-api", 7)

    release.upgrade(*options, "--set", "commonLabels.shift=night")

    found = release.cluster.find("Deployment", "-api")
    assert found["metadata"]["labels"]["shift"] == "night"
    assert found["spec"]["replicas"] == 7


def test_a_release_whose_secret_is_missing_does_not_become_ready(release: Release) -> None:
    """Or the stand-in would show nothing."""
    options = ("--set", "auth.existingSecret=nobody-made-it", "--wait", "--timeout", "3s")

    done = release.try_to("install", str(CHART), *options)

    assert done.returncode != 0
    assert "not ready" in done.stderr or "deadline" in done.stderr, done.stderr


def _scale(running: Cluster, ends_with: str, count: int) -> None:
    ref, found = next((ref, found) for ref, found in running.objects.all("Deployment") if ref.name.endswith(ends_with))
    running.objects.put(ref, {**found, "spec": {**found["spec"], "replicas": count}})
