"""What we are made of: pinned by digest, told as CycloneDX, looked up in a database of known vulnerabilities."""

import json
import re
import socket
import subprocess
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from deploy.sbom import ROOT, bill, npm_components, python_components

LOCKS = ("requirements.lock", "requirements.image.lock")
VULNERABLE = """jinja2==2.4.1 \\
    --hash=sha256:b56ecf2e5e4d0d7b8e7b3d1b7e0ee4c7ec1e5f6c1c2d3e4f5a6b7c8d9e0f1a2b
"""
DATABASE = ("pypi.org", 443)


def _requirements(lock: str) -> list[str]:
    return re.split(r"^(?=[A-Za-z0-9])", (ROOT / lock).read_text(), flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("lock", LOCKS)
def test_everything_locked_is_one_version_with_digests(lock: str) -> None:
    requirements = _requirements(lock)

    assert len(requirements) > 20
    for each in requirements:
        assert re.match(r"[A-Za-z0-9._-]+==[^\s=*]+", each), each.splitlines()[0]
        assert "--hash=sha256:" in each, each.splitlines()[0]


def test_everything_of_the_dashboard_is_locked_with_digests() -> None:
    packages = json.loads((ROOT / "api/dashboard/web/package-lock.json").read_text())["packages"]

    assert all(package["integrity"].startswith("sha512-") for path, package in packages.items() if path)


def test_the_bill_is_what_cyclonedx_says_one_is() -> None:
    document = json.dumps(bill(ROOT))

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(document) is None
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(document.replace('"library"', '"thing"', 1)) is not None


def test_the_bill_names_everything_that_ships_and_nothing_else() -> None:
    told = {each["purl"] for each in bill(ROOT)["components"]}
    locked = {f"pkg:pypi/{each.split()[0].replace('==', '@').lower()}" for each in _requirements(LOCKS[1])}

    assert {purl for purl in told if purl.startswith("pkg:pypi/")} == locked
    assert {purl.rpartition("@")[0] for purl in told if purl.startswith("pkg:npm/")} >= {
        "pkg:npm/preact",
        "pkg:npm/swagger-ui-dist",
        "pkg:npm/uplot",
    }
    assert not [purl for purl in told if "typescript" in purl], "what only builds the dashboard is not in it"


def test_the_bill_has_the_digests_of_the_lock() -> None:
    (made,) = python_components(
        "a-b==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:" + "0" * 64 + "\n    # via c\n"
    )
    (npm,) = npm_components({"packages": {"": {}, "node_modules/@x/y": {"version": "2", "integrity": "sha512-AAAA"}}})

    assert made["purl"] == "pkg:pypi/a-b@1.0"
    assert made["externalReferences"][0]["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]
    assert made["properties"] == [{"name": "tideq:marker", "value": "sys_platform == 'win32'"}]
    assert (npm["purl"], npm["hashes"]) == ("pkg:npm/%40x/y@2", [{"alg": "SHA-512", "content": "000000"}])


def test_the_same_locks_give_the_same_bill() -> None:
    assert bill(ROOT) == bill(ROOT)


def test_the_image_is_built_by_digests_and_has_the_bill_in_it() -> None:
    recipe = (ROOT / "Containerfile").read_text()

    assert "--require-hashes" in recipe
    assert "deploy/sbom.py /opt/tideq/sbom.cdx.json" in recipe
    assert "!deploy/sbom.py" in (ROOT / ".dockerignore").read_text().splitlines()


def test_the_audit_tells_of_a_version_that_is_known_to_be_vulnerable(tmp_path: Path) -> None:
    if reason := _out_of_reach():
        pytest.skip(reason)
    lock = tmp_path / "vulnerable.lock"
    lock.write_text(VULNERABLE)

    ended = subprocess.run([ROOT / "deploy/audit.sh", lock], capture_output=True, text=True, timeout=240, check=False)

    assert ended.returncode == 1, ended.stderr
    assert "jinja2" in ended.stdout


def _out_of_reach() -> str:
    """Why the database cannot be asked from here. A mirror of packages alone does not have it."""
    probe = (
        "import json, urllib.request as u; "
        "print(len(json.load(u.urlopen('https://pypi.org/pypi/jinja2/2.4.1/json', timeout=5))['vulnerabilities']))"
    )
    try:
        socket.create_connection(DATABASE, timeout=5).close()
        ended = subprocess.run(["python3", "-c", probe], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the database of vulnerabilities cannot be reached: {error}"
    return "" if ended.returncode == 0 and int(ended.stdout) else "the database of vulnerabilities does not answer here"
