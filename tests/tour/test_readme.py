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

from tests.kit import Kit
from tests.stores import StoreUnderTest

README = Path(__file__).parents[2] / "README.md"


async def test_the_readmes_example_completes_its_task(
    kit: Kit, store: StoreUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, Any] = {}

    exec(example, names)  # noqa: S102 - it is our own page
    await names["once_around"](store.url)

    assert capsys.readouterr().out == "completed\n"


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
                ["bash", "-e", "-c", script.replace("http://127.0.0.1:8080", address)], check=True, timeout=60
            )
            task = httpx.get(f"{address}/api/v1/tasks/{submitted['task_id']}").json()
        finally:
            service.terminate()

    assert (task["status"], task["result"]) == ("completed", 42)
