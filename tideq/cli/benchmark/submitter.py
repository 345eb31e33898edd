"""A process that submits tasks: prepared bytes on connections of its own, so that the client uses little CPU."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from tideq.cli.benchmark.child import CALL_ERRORS, ReportWriter, failure, successful
from tideq.cli.benchmark.messages import BenchSubmitted, BenchTarget, Order, Pace, Ready, Submit
from tideq.client.http.exchange import HttpRequest
from tideq.client.http.over_aiohttp import AsyncHttp
from tideq.workers.runtime.service_api import http_for

ANSWER_SECONDS = 60.0
WAIT_SECONDS = 30
ONE, MANY = "/api/v1/tasks", "/api/v1/tasks/batch"
TIMER_SECONDS = 0.002
"""Timers fire up to a millisecond late; that delay is this process's and is not counted as the service's."""


class Accepted(msgspec.Struct):
    task_id: str


async def run_orders(target: BenchTarget, orders: AsyncIterator[Order], reports: ReportWriter) -> None:
    """An error ends the order and not the process: a sweep may go on with smaller values."""
    reports.write(Ready())
    async for order in orders:
        try:
            if isinstance(order, Submit):
                reports.write(await Submitting(target, order, reports).run())
            elif isinstance(order, Pace):
                reports.write(await Pacing(target, order, reports).run())
        except* CALL_ERRORS as failures:
            reports.write(failure(failures.exceptions[0]))


def new_task(task_type: str, payload_bytes: int, at_ms: float = 0) -> dict[str, Any]:
    """A task whose parameters have this many bytes as JSON, but not less than their own fields need."""
    parameters = {"at": at_ms, "pad": ""}
    pad = "x" * max(payload_bytes - len(msgspec.json.encode(parameters)), 0)
    return {"task_type": task_type, "parameters": {**parameters, "pad": pad}, "required_capabilities": [task_type]}


def _post(path: str, body: bytes) -> HttpRequest:
    return HttpRequest(method="POST", path=path, body=body, waits_seconds=ANSWER_SECONDS)


class Submitting:
    def __init__(self, target: BenchTarget, order: Submit, reports: ReportWriter) -> None:
        self._order, self._reports = order, reports
        self._task = msgspec.json.encode(new_task(target.task_type, order.payload_bytes))
        self._connections = [http_for(target.url, target.api_key) for _ in range(order.connections)]
        self._taken = self._done = 0
        self._answer_ms: list[float] = []

    async def run(self) -> BenchSubmitted:
        began, cpu = time.monotonic(), time.process_time()
        try:
            async with asyncio.TaskGroup() as group:
                for connection in self._connections:
                    group.create_task(self._submit(connection))
        finally:
            for connection in self._connections:
                await connection.aclose()
        spent = time.process_time() - cpu
        return BenchSubmitted(self._done, began, time.monotonic(), spent, self._answer_ms, [])

    async def _submit(self, connection: AsyncHttp) -> None:
        while not self._reports.is_orphaned and (size := min(self._order.batch, self._order.count - self._taken)) > 0:
            self._taken += size
            body = self._task if self._order.batch == 1 else b'{"tasks":[%b]}' % b",".join([self._task] * size)
            path, began = ONE if self._order.batch == 1 else MANY, time.monotonic()
            successful(await connection.request(_post(path, body)))
            self._answer_ms.append((time.monotonic() - began) * 1000)
            self._done += size
            self._reports.progress(self._done)


class Pacing:
    """Submits at fixed times without waiting for earlier answers, so that a slow service gets the same load."""

    def __init__(self, target: BenchTarget, order: Pace, reports: ReportWriter) -> None:
        self._target, self._order, self._reports = target, order, reports
        self._http = http_for(target.url, target.api_key)
        self._answer_ms: list[float] = []
        self._round_trip_ms: list[float] = []

    async def run(self) -> BenchSubmitted:
        began, cpu = time.monotonic(), time.process_time()
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._order.count):
                    due = began + number / self._order.per_second
                    await asyncio.sleep(max(due - time.monotonic(), 0))
                    group.create_task(self._submit(due, is_waited_for=number % self._order.waits_every == 0))
                    self._reports.progress(number)
                    if self._reports.is_orphaned:
                        break
                ended = time.monotonic()
        finally:
            await self._http.aclose()
        spent = time.process_time() - cpu
        return BenchSubmitted(self._order.count, began, ended, spent, self._answer_ms, self._round_trip_ms)

    async def _submit(self, due: float, *, is_waited_for: bool) -> None:
        """A submission that starts late is measured from the time it was due."""
        now = time.monotonic()
        since = now if now - due < TIMER_SECONDS else due
        task = new_task(self._target.task_type, self._order.payload_bytes, since * 1000)
        body = msgspec.json.encode(task)
        answer = successful(await self._http.request(_post(ONE, body)))
        self._answer_ms.append((time.monotonic() - since) * 1000)
        if is_waited_for:
            task_id = msgspec.json.decode(answer.body, type=Accepted).task_id
            path = f"{ONE}/{task_id}/wait?timeout_seconds={WAIT_SECONDS}"
            successful(
                await self._http.request(
                    HttpRequest(method="GET", path=path, waits_seconds=ANSWER_SECONDS + WAIT_SECONDS)
                )
            )
            self._round_trip_ms.append((time.monotonic() - since) * 1000)
