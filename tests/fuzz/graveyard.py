"""What a DELETE took away must be gone: a task that was purged, a worker that left.

Schemathesis looks for this only where the same path can be read, and takes every DELETE for an end, which a cancel is
not.
"""

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
from schemathesis import Response


def what_is_left(client: httpx.Client, label: str, response: Response) -> Iterator[str]:
    if not label.startswith("DELETE ") or response.status_code != 200:
        return
    path = urlsplit(response.request.url or "").path
    if label.endswith("{worker_id}"):
        yield from _unless_gone(client.post(f"{path}/heartbeat"), path)
    elif json.loads(response.content or b"{}").get("purged"):
        yield from _unless_gone(client.get(path), path)


def _unless_gone(answer: httpx.Response, path: str) -> Iterator[str]:
    if answer.status_code != 404:
        yield f"{path} was deleted and is still there: {answer.status_code} {answer.text[:300]}"
