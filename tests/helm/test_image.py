"""The image as it ships: built, and run as restricted as the chart runs it."""

import json
import random
import re
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.helm.containers import HARDENED, IMAGE, ROOT, CannotBuild, Containers, missing
from tests.stores import free_port
from tideq.embedded import EmbeddedStores, ValkeyOptions, bundled_valkey

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
    pytest.mark.timeout(1_000),  # the first build fetches and installs everything
]
DASHBOARD = ROOT / "api" / "dashboard" / "static" / "index.html"
"""Built where npm could be reached, which is then so in the image."""
LOOK = """
import json, os, shutil
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
try:
    open("/app/mark", "w")
    is_writable = True
except OSError:
    is_writable = False
open("/tmp/mark", "w")
import tideq.api.app, tideq.cli
print(json.dumps({
    "uid": os.getuid(), "capabilities": int(status["CapEff"], 16), "no_new_privileges": int(status["NoNewPrivs"]),
    "is_writable": is_writable, "compilers": [name for name in ("cc", "gcc", "clang", "make") if shutil.which(name)],
    "has_pip": os.path.exists("/opt/tideq/bin/pip"),
    "has_bill": "pkg:pypi/litestar@" in open("/opt/tideq/sbom.cdx.json").read(),
    "packages": len(json.load(open("/opt/tideq/packages.json"))["installed"]),
    "has_dashboard": os.path.exists(os.path.dirname(tideq.api.app.__file__) + "/dashboard/static/index.html.gz"),
}))
"""


@pytest.fixture(scope="module")
def image() -> Containers:
    containers = Containers()
    try:
        containers.build()
    except CannotBuild as reason:
        pytest.skip(str(reason))
    return containers


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = ValkeyOptions(binary=bundled_valkey(), port=free_port())
    with EmbeddedStores(tmp_path_factory.mktemp("valkey"), valkey=options, postgres=None) as stores:
        yield stores.redis_url


def test_it_says_what_it_is_and_how_it_is_run(image: Containers) -> None:
    config = image.config()

    labels = {name.rpartition(".")[2] for name in config["Labels"] if name.startswith("org.opencontainers.image.")}
    assert labels == {"title", "description", "licenses", "version", "revision"}
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["tideq"]
    assert config["StopSignal"] in ("SIGTERM", "15")
    assert config["Healthcheck"]["Test"][0] == "CMD"


def test_it_runs_restricted_as_itself_and_as_anybody_else(image: Containers) -> None:
    known = [line.split(":") for line in image.run("/etc/passwd", entrypoint="cat").splitlines()]
    anybody = random.choice([int(fields[2]) for fields in known if fields[2] != "0"])
    stranger = random.randint(100_000, 200_000)

    for user, uid in (("", 10_001), (f"{anybody}:{anybody}", anybody), (f"{stranger}:0", stranger)):
        seen = json.loads(image.run("-c", LOOK, user=user))
        assert seen.pop("packages") > 40
        assert seen.pop("has_dashboard") or not DASHBOARD.exists()
        assert seen == {
            "uid": uid,
            "capabilities": 0,
            "no_new_privileges": 1,
            "is_writable": False,
            "compilers": [],
            "has_pip": False,
            "has_bill": True,
        }


def test_the_service_in_it_is_healthy_and_drains_when_told_to_stop(image: Containers, redis_url: str) -> None:
    port, name = free_port(), f"tideq-{uuid.uuid4().hex[:8]}"
    url = f"http://127.0.0.1:{port}"
    given = {
        "REDIS_URL": redis_url,
        "TIDEQ_AUTH": "off",
        "TIDEQ_PORT": str(port),
        "TIDEQ_QUEUE": uuid.uuid4().hex[:12],
        "HEALTH_URL": f"{url}/livez",
    }
    variables = [f"--env={key}={value}" for key, value in given.items()]
    image.podman("run", "--detach", "--network=host", *HARDENED, f"--name={name}", *variables, IMAGE, "serve")
    try:
        _wait_until_ready(url)
        image.podman("healthcheck", "run", name)
        worker = httpx.post(f"{url}/internal/workers/register", json={}).json()["worker_id"]

        with ThreadPoolExecutor() as pool, httpx.Client(base_url=url, timeout=60) as client:
            poll = pool.submit(client.post, f"/internal/workers/{worker}/poll", json={"wait_seconds": 30})
            _wait_until_polling(url)
            image.podman("stop", "--time=30", name)

        assert poll.result().json()["tasks"] == [], "the waiting poll was not answered"
        assert json.loads(image.podman("inspect", name).stdout)[0]["State"]["ExitCode"] == 0
    finally:
        image.podman("rm", "--force", name)


def _wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            assert time.monotonic() < deadline, "the service did not become ready"
        time.sleep(0.1)


def _wait_until_polling(url: str) -> None:
    """The service counts those who wait."""
    deadline = time.monotonic() + 30
    while not re.search(r"^tideq_waiting_polls(\{.*\})? 1", text := httpx.get(f"{url}/metrics").text, re.MULTILINE):
        assert time.monotonic() < deadline, text
        time.sleep(0.05)
