"""How a client learns what the server has: groups, kinds, and that it can validate and dry-run."""

from itertools import groupby

from tests.helm.cluster.kinds import KINDS, Kind
from tests.helm.cluster.objects import Json

VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def described(path: str) -> Json | None:
    """The document at a path of discovery, None for any other."""
    if path == "version":
        return {"major": "1", "minor": "35", "gitVersion": "v1.35.0", "platform": "linux/amd64"}
    if path == "api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "apis":
        return {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(name) for name in _roots(with_core=False)],
        }
    if path == "openapi/v3":
        return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in _roots()}}
    if path.startswith("openapi/v3/"):
        return _openapi(_kinds_under(path.removeprefix("openapi/v3/")))
    return _resources(path) if path in _roots() else None


def _roots(*, with_core: bool = True) -> list[str]:
    roots = [root for root, _ in groupby(KINDS.values(), key=lambda kind: kind.root)]
    return roots if with_core else [root for root in roots if root.startswith("apis/")]


def _kinds_under(root: str) -> list[Kind]:
    return [kind for kind in KINDS.values() if kind.root == root]


def _group(root: str) -> Json:
    group_version = root.removeprefix("apis/")
    group, _, version = group_version.partition("/")
    offered = {"groupVersion": group_version, "version": version}
    return {"name": group, "versions": [offered], "preferredVersion": offered}


def _resources(root: str) -> Json:
    kinds = _kinds_under(root)
    resources = [
        {
            "name": kind.plural,
            "singularName": kind.name.lower(),
            "namespaced": kind.is_namespaced,
            "kind": kind.name,
            "verbs": VERBS,
        }
        for kind in kinds
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": kinds[0].api_version,
        "resources": resources,
    }


def _openapi(kinds: list[Kind]) -> Json:
    """Helm looks here whether a patch may be validated by the server."""
    options = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("fieldValidation", "dryRun")]
    paths = {
        f"/{kind.root}/{kind.plural}": {
            "patch": {
                "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.name},
                "parameters": options,
                "responses": {},
            }
        }
        for kind in kinds
    }
    return {"openapi": "3.0.0", "info": {"title": "stand-in", "version": "1"}, "paths": paths}
