"""Checks the service as a client reaches it, and the state of the queue."""

import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from tideq.cli.checks.finding import Finding, fail, ok, warn
from tideq.cli.circuits import blocked_types_text, is_blocked, reasons
from tideq.cli.top_view.readings import Snapshot, read
from tideq.cli.top_view.view import type_rows
from tideq.client import Client, Forbidden, TideqError, Unauthorized
from tideq.client.calls.base import get
from tideq.client.error_mapping import refusal
from tideq.client.http.exchange import Response

MAX_SKEW_SECONDS = 5.0
OLD_SECONDS = 3_600.0
MANY_DUE = 100
LONG_OUTBOX = 100_000
STALE_ADVICE = "look for `duty failed` in its log; the duty continues by itself once the cause is fixed"
UNUSED_TYPE = "tideq-doctor-probe"
START_ADVICE = "start one with `tideq up`, or give its URL: --url, TIDEQ_URL, `tideq context add`"
KEY_ADVICE = "create one with `tideq keys create NAME --role ROLE`; give it as --api-key or TIDEQ_API_KEY"


class HealthReply(msgspec.Struct):
    """The answer that identifies a TideQ service."""

    status: Literal["alive"]


class StaleDuty(msgspec.Struct):
    duty: str
    seconds: float


class StaleElsewhere(StaleDuty):
    process: str


class Readiness(msgspec.Struct):
    stale_duties: list[StaleDuty] = []
    stale_elsewhere: list[StaleElsewhere] = []
    """Absent in the answers of earlier versions."""


def check_service(client: Client, *, is_expected: bool) -> Iterator[Finding]:
    """`is_expected`: an option, the environment or a context names the service, so that silence is a failure."""
    try:
        answer, skew = _get(client, "/livez")
        msgspec.json.decode(answer.body, type=HealthReply)
    except (TideqError, msgspec.DecodeError) as error:
        is_silent = isinstance(error, TideqError)
        found = str(error) if is_silent else f"{client.transport.connection.url} is not a TideQ service"
        yield (fail if is_expected or not is_silent else warn)("service", found, START_ADVICE)
        return
    yield ok("service", f"{client.transport.connection.url} answers")
    yield from check_clock(skew)
    readiness = _check_ready(client)
    yield readiness
    if readiness.status != "fail":
        yield from _check_key(client)


def answers_at(client: Client, host: str, port: int) -> bool:
    """Whether the service that answered is the one that listens on this port."""
    url = urlsplit(client.transport.connection.url)
    return url.hostname in (host, "localhost") and (url.port or 80) == port


def check_clock(skew: float | None) -> Iterator[Finding]:
    """The queue uses the clock of its store; a client that computes `run_at` uses its own."""
    if skew is None:
        return
    if abs(skew) > MAX_SKEW_SECONDS:
        direction = "ahead of" if skew > 0 else "behind"
        found = f"this clock is {abs(skew):.0f} s {direction} the service's"
        yield warn("clock", found, "let NTP set both clocks; until then use delays, not instants")
    else:
        yield ok("clock", "agrees with the service's to within a few seconds")


def _check_ready(client: Client) -> Finding:
    try:
        answer, _ = _get(client, "/readyz")
    except TideqError as error:
        return fail("ready", str(error), "read the service's log, and the store's checks below")
    if not answer.is_success:
        error = refusal(answer.status, answer.body, None)
        return fail("ready", f"not ready: {error}", "read its log, and run `tideq doctor` where REDIS_URL is set")
    readiness = msgspec.json.decode(answer.body, type=Readiness)
    if readiness.stale_duties or readiness.stale_elsewhere:
        names = ", ".join(
            [
                *(f"{each.duty} ({each.seconds:.0f} s)" for each in readiness.stale_duties),
                *(f"{each.duty} on {each.process} ({each.seconds:.0f} s)" for each in readiness.stale_elsewhere),
            ]
        )
        return warn("ready", f"accepts work, but these duties are stale: {names}", STALE_ADVICE)
    return ok("ready", "accepts work")


def _check_key(client: Client) -> Iterator[Finding]:
    try:
        role = _role(client)
    except Unauthorized as error:
        has_key = "Authorization" in client.transport.connection.headers
        yield fail("key", str(error) if has_key else "the service requires a key, and none is set", KEY_ADVICE)
        return
    except TideqError as error:
        yield fail("key", str(error), "read the service's log")
        return
    yield ok("key", f"has the rights of {_article(role)} {role}")
    if role != "worker":
        yield from _check_queue(client)


def _role(client: Client) -> str:
    """Derives the role from the calls that the key permits; none of the calls changes anything."""
    if not _is_permitted(lambda: client.queue.stats()):
        return "worker"
    if not _is_permitted(lambda: client.queue.limits()):
        return "producer"
    is_admin = _is_permitted(lambda: client.dlq.replay_all(task_type=UNUSED_TYPE, dry_run=True))
    return "admin" if is_admin else "viewer"


def _is_permitted(act: Callable[[], object]) -> bool:
    try:
        act()
    except Forbidden:
        return False
    except Unauthorized:
        raise
    except TideqError:
        # Refused for another reason, after the role was checked.
        return True
    return True


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _check_queue(client: Client) -> Iterator[Finding]:
    try:
        reading = read(client)
    except TideqError as error:
        yield fail("queue", str(error), "read the service's log")
        return
    yield from check_snapshot(reading)


def check_snapshot(reading: Snapshot) -> Iterator[Finding]:
    """Findings from one reading. Pure."""
    yield from _check_pauses(reading)
    yield from _check_types(reading)
    yield _check_age(reading)
    yield from _check_backlogs(reading)


def _check_pauses(reading: Snapshot) -> Iterator[Finding]:
    for limit in reading.limits or ():
        if limit.paused:
            target = f"type {limit.task_type}" if limit.task_type else "the whole queue"
            details = " ".join(filter(None, [f"by {limit.paused_by}" if limit.paused_by else "", limit.reason or ""]))
            name = f" {limit.task_type}" if limit.task_type else ""
            yield warn("paused", f"{target} is paused {details}".rstrip(), f"resume it with `tideq queue resume{name}`")


def _check_types(reading: Snapshot) -> Iterator[Finding]:
    if reading.workers is None:
        return
    unserved = [row for row in type_rows(reading) if row.waiting and not row.worker_count]
    for row in unserved:
        found = f"{row.waiting} tasks of type {row.task_type} wait and no active worker serves the type"
        yield warn("workers", found, "start a worker, or compare the type's spelling with its handler's")
    if not unserved:
        fleet = reading.stats.workers
        yield ok("workers", f"{fleet.active} active, {fleet.used_capacity} of {fleet.total_capacity} slots in use")
    for worker in reading.workers:
        if worker.status == "unhealthy":
            found = f"{worker.worker_id} is unhealthy ({worker.reason}) and gets no work"
            yield warn("workers", found, "read its health page and its log")
        if is_blocked(worker):
            found = f"{worker.worker_id} is blocked from {blocked_types_text(worker)}: {reasons(worker.blocked_types)}"
            yield warn("circuits", found, "find the cause of the failures in its log and with `tideq dlq patterns`")


def _check_age(reading: Snapshot) -> Finding:
    age = reading.stats.queue.oldest_age_seconds
    if age > OLD_SECONDS:
        found = f"the oldest waiting task is {age / 3_600:.1f} h old"
        return warn("age", found, "run `tideq tasks list --status queued`, then `tideq tasks explain ID`")
    waiting = reading.stats.queue.total_depth
    return ok("age", f"the oldest waiting task is {age:.0f} s old" if waiting else "no task waits")


def _check_backlogs(reading: Snapshot) -> Iterator[Finding]:
    stats = reading.stats
    if stats.due > MANY_DUE:
        yield warn("recovery", f"{stats.due} due tasks have not been recovered", "run `tideq monitor`")
    if stats.outbox_length > LONG_OUTBOX:
        found = f"the outbox holds {stats.outbox_length} entries"
        yield warn("outbox", found, "run `tideq replicate`; at TIDEQ_MAX_OUTBOX_ENTRIES submissions are refused")
    if stats.dead_letters:
        yield warn("dead letters", f"{stats.dead_letters} dead letters", "see their errors with `tideq dlq patterns`")


def _get(client: Client, path: str) -> tuple[Response, float | None]:
    """The answer with any status, and how far this clock is ahead of the service's; the header has whole seconds."""
    before = time.time()
    answer = client.transport.exchange(get(path, bytes))
    local = (before + time.time()) / 2
    stamp = answer.headers.get("Date")
    return answer, local - (parsedate_to_datetime(stamp).timestamp() + 0.5) if stamp else None
