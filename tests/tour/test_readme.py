"""The README's examples run as they stand."""

import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.stores import StoreUnderTest
from tideq.testing import LocalService

README = Path(__file__).parents[2] / "README.md"


def test_the_readmes_tasks_do_what_they_say(tideq_service: LocalService) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102 - it is our own page

    names["resize"].submit("a.png", width=320)
    names["resize"].submit("a.png", width=0)
    names["tq"]("crawl").add({"url": "https://example.org"})
    tideq_service.client.submit("greet", {"name": "tide"})
    done = [(task.status, task.result) for task in tideq_service.run_pending()]

    assert done == [
        ("completed", {"url": "a.png", "width": 320}),
        ("failed", None),
        ("completed", 19),
        ("completed", "Hello, tide!"),
    ]


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl on this machine")
def test_the_readmes_worker_in_bash_completes_a_task(store: StoreUnderTest) -> None:
    (script,) = re.findall(r"```bash\n(.*?)```", README.read_text(), re.DOTALL)
    command = [sys.executable, "-m", "tideq.cli", "serve", "--port", "0"]
    environ = {**os.environ, "REDIS_URL": store.url, "TIDEQ_AUTH": "off", "TIDEQ_QUEUE": uuid.uuid4().hex[:12]}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        address = service.stdout.readline().split()[-1]
        try:
            submitted = httpx.post(f"{address}/api/v1/tasks", json={"task_type": "hello"}).json()
            subprocess.run(
                ["bash", "-e", "-c", script.replace("http://127.0.0.1:8080", address)], check=True, timeout=180
            )
            task = httpx.get(f"{address}/api/v1/tasks/{submitted['task_id']}").json()
        finally:
            service.terminate()

    assert (task["status"], task["result"]) == ("completed", 42)
