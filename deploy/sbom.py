"""Writes the image's bill of materials as CycloneDX 1.6: Python packages from its lock file, npm's for the dashboard.

    python deploy/sbom.py build/sbom.cdx.json

Lists the locked packages of every platform with the digests that installers check; a marker names the platforms without
a package. The packages of the base image are not included. The same lock files give the same document, byte for byte.
"""

import base64
import hashlib
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*([^\\]+?))?\s*\\?$")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
Component = dict[str, Any]


def main() -> None:
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bill(ROOT), indent=1) + "\n")


def bill(root: Path) -> dict[str, Any]:
    """The whole document."""
    python = list(python_components((root / "requirements.image.lock").read_text()))
    npm = list(npm_components(json.loads((root / "api/dashboard/web/package-lock.json").read_text())))
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    parts = sorted([*python, *npm], key=lambda each: each["bom-ref"])
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}",
        "version": 1,
        "metadata": {"component": _product(project)},
        "components": parts,
        "dependencies": [{"ref": "tideq", "dependsOn": [each["bom-ref"] for each in parts]}],
    }


def python_components(lock: str) -> Iterator[Component]:
    """The packages of a lock file written by `uv pip compile --generate-hashes`."""
    name, found = "", dict[str, Component]()
    for line in lock.splitlines():
        if match := PINNED.match(line):
            name = match[1]
            found[name] = _component("pypi", name.lower(), match[2])
            if match[3]:
                found[name]["properties"] = [{"name": "tideq:marker", "value": match[3]}]
        elif digest := HASH.search(line):
            reference = {"type": "distribution", "url": f"https://pypi.org/project/{name}/{found[name]['version']}/"}
            kept = found[name].setdefault("externalReferences", [{**reference, "hashes": []}])
            kept[0]["hashes"].append({"alg": "SHA-256", "content": digest[1]})
    yield from found.values()


def npm_components(lock: dict[str, Any]) -> Iterator[Component]:
    """The packages whose code is in the dashboard, without development dependencies."""
    for path, package in lock["packages"].items():
        if path and not package.get("dev"):
            kind, _, digest = package["integrity"].partition("-")
            content = base64.b64decode(digest).hex()
            made = _component("npm", path.rpartition("node_modules/")[2], package["version"])
            yield {**made, "hashes": [{"alg": kind.upper().replace("SHA", "SHA-"), "content": content}]}


def _component(kind: str, name: str, version: str) -> Component:
    purl = f"pkg:{kind}/{name.replace('@', '%40')}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _product(project: dict[str, Any]) -> Component:
    return {
        "type": "application",
        "bom-ref": "tideq",
        "name": project["name"],
        "version": project["version"],
        "description": project["description"],
        "licenses": [{"license": {"id": project["license"]}}],
    }


if __name__ == "__main__":
    main()
