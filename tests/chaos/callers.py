"""Clients over HTTP that note each call before they act on its answer."""

import asyncio
import itertools
import random
from typing import Any, NamedTuple

import httpx

from tests.chaos.notes import Note, Notebook, outcome_of, wall_ms

PATIENCE_SECONDS = 8.0
PAUSE_SECONDS = 0.1


class Told(NamedTuple):
    outcome: str
    status: int
    body: Any
    began: int = 0


class Caller:
    """One client of both API processes: whoever answered badly is not asked next."""

    def __init__(self, name: str, urls: list[str], notebook: Notebook, seed: int) -> None:
        self.name = name
        self.random = random.Random(f"{name}:{seed}")
        self._notebook = notebook
        self._urls = itertools.cycle(urls)
        self._url = next(self._urls)
        self._http = httpx.AsyncClient(timeout=PATIENCE_SECONDS)

    async def close(self) -> None:
        await self._http.aclose()

    async def call(self, f: str, method: str, path: str, body: Any = None, **facts: Any) -> Told:
        began = wall_ms()
        answer, extra = await self._ask(method, path, body)
        told = answer._replace(began=began)
        self.note(f, began, told, **facts, **extra)
        if told.outcome == "info" or told.status in (429, 503):
            self._url = next(self._urls)
            await asyncio.sleep(PAUSE_SECONDS)
        return told

    async def poll(self, worker_id: str, body: dict[str, Any]) -> Told:
        """Its note says what was handed out, and until when."""
        began = wall_ms()
        told, extra = await self._ask("POST", f"/internal/workers/{worker_id}/poll", body)
        kept = ("task_id", "lease", "attempt", "visible_at", "status", "timeout_seconds")
        tasks = [{name: task[name] for name in kept} for task in told.body["tasks"]] if told.outcome == "ok" else []
        self.note("poll", began, told, worker=worker_id, poll_id=body["poll_id"], tasks=tasks, **extra)
        if told.outcome == "info":
            self._url = next(self._urls)
            await asyncio.sleep(PAUSE_SECONDS)
        return told

    def tell(self, f: str, **facts: Any) -> None:
        self._notebook.note(f, by=self.name, **facts)

    def note(self, f: str, began: int, told: Told, **facts: Any) -> None:
        self._notebook.note(f, by=self.name, t0=began, type=told.outcome, status=told.status, **facts)

    async def _ask(self, method: str, path: str, body: Any) -> tuple[Told, Note]:
        try:
            answer = await self._http.request(method, self._url + path, json=body)
        except (httpx.HTTPError, OSError) as error:
            return Told("info", 0, None), {"problem": type(error).__name__, "asked": self._url}
        content: Note = answer.json() if answer.content else {}
        if answer.status_code < 300:
            return Told("ok", answer.status_code, content), {}
        code = str(content.get("type", "")).rpartition("/")[2]
        told = Told(outcome_of(answer.status_code, code), answer.status_code, content)
        return told, {"problem": code, "retry_after": answer.headers.get("retry-after")}
