"""What controllers and kubelets would make of the objects, as far as it decides whether a release becomes ready.

A pod starts when everything it refers to is there. It is ready when its init containers are through: one that waits
for the schema is, once a migration by its own image has completed. Nothing runs: Jobs complete, pods succeed.
"""

from collections.abc import Iterator
from typing import Any

from tests.helm.cluster.objects import Json, Objects, Ref


class Controllers:
    def __init__(self) -> None:
        self._migrated: set[str] = set()
        """By image. Kept when the Job is gone: the schema is in the database."""

    def settle(self, objects: Objects) -> None:
        """Jobs first: what waits for them can then be ready."""
        for ref, job in objects.all("Job"):
            self._run(objects, ref, job)
        for ref, found in objects:
            if (status := self._status(objects, ref, found)) is not None:
                objects.set_status(ref, status)

    def _run(self, objects: Objects, ref: Ref, job: Json) -> None:
        template = job["spec"]["template"]
        can_start = _can_start(objects, ref.namespace, template)
        objects.set_status(ref, _job_status(can_start))
        if can_start:
            self._migrated |= {each["image"] for each in template["spec"]["containers"] if _is_migration(each)}

    def _status(self, objects: Objects, ref: Ref, found: Json) -> Json | None:
        match ref.kind.name:
            case "Deployment" | "StatefulSet":
                template = found["spec"]["template"]
                is_ready = _can_start(objects, ref.namespace, template) and self._is_through(template)
                return _workload_status(found, is_ready=is_ready)
            case "Pod":
                can_start = _can_start(objects, ref.namespace, found)
                return {"phase": "Succeeded" if can_start else "Pending", "conditions": []}
            case "Namespace":
                return {"phase": "Active"}
            case _:
                return None

    def _is_through(self, template: Json) -> bool:
        waiting = [each["image"] for each in template["spec"].get("initContainers", ()) if _is_migration(each)]
        return self._migrated.issuperset(waiting)


def _is_migration(container: Json) -> bool:
    return "migrate" in container.get("command", ())


def _job_status(has_run: bool) -> Json:
    if not has_run:
        return {"active": 1}
    conditions = [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")]
    return {"succeeded": 1, "conditions": conditions}


def _workload_status(found: Json, *, is_ready: bool) -> Json:
    wanted = found["spec"].get("replicas", 1)
    ready = wanted if is_ready else 0
    counts = dict.fromkeys(("readyReplicas", "availableReplicas", "currentReplicas"), ready)
    available = {"type": "Available", "status": str(is_ready)}
    progressing = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
    return {
        "observedGeneration": found["metadata"]["generation"],
        "replicas": wanted,
        "updatedReplicas": wanted,
        **counts,
        "currentRevision": "1",
        "updateRevision": "1",
        "conditions": [available, progressing],
    }


def _can_start(objects: Objects, namespace: str, template: Json) -> bool:
    present = {(ref.kind.name, ref.namespace, ref.name): found for ref, found in objects}
    for kind, name, key in _references(template["spec"]):
        found = present.get((kind, namespace, name))
        if found is None or (key and key not in {**found.get("data", {}), **found.get("stringData", {})}):
            return False
    return True


def _references(spec: Json) -> Iterator[tuple[str, str, str]]:
    """Kind, name and, where one is named, the entry."""
    yield "ServiceAccount", spec["serviceAccountName"], ""
    for volume in spec.get("volumes", ()):
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"], ""
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"], ""
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        for source in container.get("envFrom", ()):
            yield "ConfigMap", source["configMapRef"]["name"], ""
        for variable in container.get("env", ()):
            source: Any = variable.get("valueFrom", {}).get("secretKeyRef")
            if source:
                yield "Secret", source["name"], source["key"]
