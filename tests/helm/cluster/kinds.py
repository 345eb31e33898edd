"""The kinds of objects the stand-in keeps: those of the chart, and those Helm asks about."""

from typing import NamedTuple


class Kind(NamedTuple):
    group: str
    """Empty for the core group."""
    version: str
    plural: str
    name: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"apis/{self.api_version}" if self.group else f"api/{self.version}"


_NAMES = {
    "v1": "Pod Service Secret ConfigMap ServiceAccount PersistentVolumeClaim Event",
    "apps/v1": "Deployment StatefulSet DaemonSet ReplicaSet",
    "batch/v1": "Job CronJob",
    "policy/v1": "PodDisruptionBudget",
    "autoscaling/v2": "HorizontalPodAutoscaler",
    "networking.k8s.io/v1": "Ingress NetworkPolicy",
    "monitoring.coreos.com/v1": "ServiceMonitor PodMonitor PrometheusRule",
    "keda.sh/v1alpha1": "ScaledObject TriggerAuthentication",
    "gateway.networking.k8s.io/v1": "HTTPRoute",
}


def _plural(name: str) -> str:
    name = name.lower()
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


def _kinds() -> dict[str, Kind]:
    made = [Kind("", "v1", "namespaces", "Namespace", is_namespaced=False)]
    for api_version, names in _NAMES.items():
        group, _, version = api_version.rpartition("/")
        made += [Kind(group, version, _plural(name), name) for name in names.split()]
    return {f"{kind.root}/{kind.plural}": kind for kind in made}


KINDS = _kinds()
"""By the path objects of that kind are found under."""
