"""A run in which everything a client says is hostile and every secret is known: what it leaves behind is searched.

Secrets are access keys, right and almost right, and the passwords of both stores. Left behind are logs, spans, metrics,
audit notes, answers, everything the stores wrote, and the arguments of all processes.
"""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from psycopg import sql

from tests.api.bench import held
from tests.security.guarded import USERS, Guarded, Programs, bearing, password

HOSTILE = 'a\n{"event": "forged", "level": "info"}\r\x1b[2J\x1b]0;mine\x07\u2028\u202e\x85b'
IN_HEADERS = 'a"}{"event": "forged"}\x9b31m\x85b'.encode("latin-1")
GREETINGS = ("TideQ answers at ", "monitoring", "replicating")
LEFT = ("logs", "spans", "metrics", "audit", "answers", "the store's log", "history", "arguments")


class Left:
    """What a run has left behind, by what it is."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.secrets: dict[str, str] = {}


@pytest.fixture(scope="module")
def left(stores: Guarded, programs: Programs, key: str) -> Left:
    found = Left()
    key_id, secret = key.split("_", 2)[1:]
    almost = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    found.secrets = {"the key": secret, "a key that is almost right": almost}
    found.secrets |= {f"the store's password of {user}": password(user) for user in USERS}
    answers = asyncio.run(_be_hostile(programs.url, key, f"tq_{key_id}_{almost}"))
    programs.sink.wait(lambda spans: any(span.name == "task.lifecycle" for span in spans))
    found.texts = {
        "logs": "".join(programs.logs().values()),
        "spans": repr(programs.sink.spans),
        "metrics": answers.pop("metrics"),
        "audit": answers.pop("audit"),
        "answers": repr(answers),
        "the store's log": _written_by_the_store(stores),
        "history": _rows(stores),
        "arguments": _arguments(programs),
    }
    return found


async def _be_hostile(url: str, key: str, wrong: str) -> dict[str, str]:
    """Every text of a client's that is looked at, in every place for one."""
    headers = {**bearing(key), "User-Agent": IN_HEADERS, "baggage": IN_HEADERS, "tracestate": IN_HEADERS}
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        told = [await http.get("/api/v1/queue/stats", headers={"Authorization": f"Bearer {wrong}"})]
        told += [await http.get(path, headers=bearing(wrong)) for path in ("/api/v1/tasks", "/metrics", "/internal/x")]
        http.headers.update(headers)  # type: ignore[arg-type] - bytes go out as they are
        task = {"task_type": "hostile", "tags": {"a": HOSTILE}, "parameters": {"b": HOSTILE}, "max_retries": 0}
        told += [await http.post("/api/v1/tasks", json=body) for body in (task, task, {"task_type": HOSTILE})]
        told.append(await http.post("/api/v1/tasks", json={**task, HOSTILE: 1}))
        told.append(await http.post("/api/v1/tasks", json={**task, "idempotency_key": HOSTILE, "client_id": HOSTILE}))
        told += [await http.get(path, params={"a": HOSTILE}) for path in ("/api/v1/tasks", "/api/v1/dlq")]
        told.append(await http.get(f"/api/v1/tasks/{quote(HOSTILE, safe='')}"))
        told += await _work(http)
        told.append(await http.post("/api/v1/queue/pause", json={"task_type": "nothing", "reason": HOSTILE}))
        return {
            "metrics": (await http.get("/metrics")).text,
            "audit": (await http.get("/api/v1/audit")).text,
            **{str(number): f"{each.text} {each.headers}" for number, each in enumerate(told)},
        }


async def _work(http: httpx.AsyncClient) -> list[httpx.Response]:
    odd = {"task_types": [HOSTILE], "host": HOSTILE, "version": HOSTILE}
    refused = await http.post("/internal/workers/register", json=odd)
    asked = {"task_types": ["hostile"], "capacity": 10, "version": HOSTILE}
    registered = await http.post("/internal/workers/register", json=asked)
    if registered.is_error:
        registered = await http.post("/internal/workers/register", json={"task_types": ["hostile"], "capacity": 10})
    me = f"/internal/workers/{registered.json()['worker_id']}"
    told = [refused, registered]
    for task in (await http.post(f"{me}/poll", json={"available_capacity": 10})).json()["tasks"]:
        told.append(await http.post(f"{me}/start", json=held(task)))
        told.append(await http.post(f"{me}/progress", json={**held(task), "status_message": HOSTILE}))
        error: Any = {"message": HOSTILE, "code": "BAD", "retriable": True, "details": {"a": HOSTILE}}
        told.append(await http.post(f"{me}/result", json={**held(task), "status": "failed", "error": error}))
    told.append(await http.post(f"{me}/heartbeat", json={"current_load": 0, "status": HOSTILE}))
    return told


def _written_by_the_store(stores: Guarded) -> str:
    """Its append-only file: every command there ever was, scripts' effects included."""
    files = [path for path in (stores.folder / "valkey").rglob("*") if path.is_file() and "aof" in path.name]
    assert files
    return "".join(path.read_bytes().decode("latin-1") for path in files)


def _rows(stores: Guarded) -> str:
    with stores.connect() as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'tideq'").fetchall()
        every = [sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier("tideq", name)) for (name,) in tables]
        rows: list[Any] = [connection.execute(each).fetchall() for each in every]
    return repr(rows)


def _arguments(programs: Programs) -> str:
    return "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in programs.pids.values())


@pytest.mark.parametrize("place", LEFT)
def test_no_secret_is_in(left: Left, place: str) -> None:
    text = left.texts[place]

    assert text
    assert [name for name, secret in left.secrets.items() if secret in text] == []


def test_what_is_searched_would_show_a_secret(left: Left, key: str) -> None:
    """Each place holds something of this run: a search that finds nothing has looked somewhere."""
    assert '"dead-letter pattern appeared"' in left.texts["logs"] or '"transition"' in left.texts["logs"]
    assert "task.lifecycle" in left.texts["spans"]
    assert "tideq_http_requests_total" in left.texts["metrics"]
    assert "boss" in left.texts["audit"]
    assert "unauthorized" in left.texts["answers"]
    assert key.split("_")[1] in left.texts["the store's log"], "the key's id is kept, and its digest"
    assert "hostile" in left.texts["history"]
    assert "serve" in left.texts["arguments"]


def test_a_log_line_is_one_event_whatever_it_tells(left: Left) -> None:
    lines = [line for line in left.texts["logs"].split("\n") if line and not line.startswith(GREETINGS)]

    assert lines
    assert all(line.isprintable() for line in lines), "control characters would steer a terminal"
    events = [json.loads(line)["event"] for line in lines]
    assert "forged" not in events


def test_spans_and_metrics_are_named_by_us(left: Left, programs: Programs) -> None:
    assert all(span.name.isprintable() and "forged" not in span.name for span in programs.sink.spans)
    assert "forged" not in left.texts["metrics"]
