"""The service as its clients see it, and the queue as the service tells of it."""

import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from tideq.cli.checks.finding import Finding, fail, ok, warn
from tideq.cli.circuits import held_back_words, is_held_back, reasons
from tideq.cli.top_view.readings import Snapshot, read
from tideq.cli.top_view.view import type_rows
from tideq.client import Client, Forbidden, TideqError, Unauthorized
from tideq.client.calls.base import get
from tideq.client.error_mapping import refusal
from tideq.client.http.answers import Response

MAX_SKEW_SECONDS = 5.0
OLD_SECONDS = 3_600.0
MANY_DUE = 100
LONG_OUTBOX = 100_000
STALE_ADVICE = "look for `duty failed` in its log: it goes on by itself once that is mended"
NOBODYS_TYPE = "tideq-doctor-asks"
TRY_UP = "start one with `tideq up`, or say where it is: --url, TIDEQ_URL, `tideq context add`"
SAY_KEY = "`tideq keys create NAME --role ROLE` makes one; hand it over as --api-key or TIDEQ_API_KEY"


class HealthReply(msgspec.Struct):
    """By this a TideQ service is known."""

    status: Literal["alive"]


class StaleDuty(msgspec.Struct):
    duty: str
    seconds: float


class StaleElsewhere(StaleDuty):
    process: str


class Readiness(msgspec.Struct):
    stale_duties: list[StaleDuty] = []
    stale_elsewhere: list[StaleElsewhere] = []
    """An earlier version names none."""


def check_service(client: Client, *, is_expected: bool) -> Iterator[Finding]:
    """`is_expected` is whether somebody said where it should be."""
    try:
        answer, skew = _look(client, "/livez")
        msgspec.json.decode(answer.body, type=HealthReply)
    except (TideqError, msgspec.DecodeError) as error:
        is_silent = isinstance(error, TideqError)
        found = str(error) if is_silent else f"{client.transport.connection.url} is no TideQ service"
        yield (fail if is_expected or not is_silent else warn)("service", found, TRY_UP)
        return
    yield ok("service", f"{client.transport.connection.url} answers")
    yield from check_clock(skew)
    readiness = _check_ready(client)
    yield readiness
    if readiness.status != "fail":
        yield from _check_key(client)


def answers_at(client: Client, host: str, port: int) -> bool:
    """Whether the service that was asked is the one that has this port."""
    url = urlsplit(client.transport.connection.url)
    return url.hostname in (host, "localhost") and (url.port or 80) == port


def check_clock(skew: float | None) -> Iterator[Finding]:
    """The queue goes by its store's clock; `run_at` and what people read off their own do not."""
    if skew is None:
        return
    if abs(skew) > MAX_SKEW_SECONDS:
        direction = "ahead of" if skew > 0 else "behind"
        found = f"this clock is {abs(skew):.0f} s {direction} the service's"
        yield warn("clock", found, "let NTP set both; until then use delays, not instants")
    else:
        yield ok("clock", "agrees with the service's to within a few seconds")


def _check_ready(client: Client) -> Finding:
    try:
        answer, _ = _look(client, "/readyz")
    except TideqError as error:
        return fail("ready", str(error), "look at the service's log, and at the store's checks below")
    if not answer.is_success:
        error = refusal(answer.status, answer.body, None)
        return fail("ready", f"it takes no work: {error}", "look at its log, and run the doctor where REDIS_URL is set")
    told = msgspec.json.decode(answer.body, type=Readiness)
    if told.stale_duties or told.stale_elsewhere:
        names = ", ".join(
            [
                *(f"{each.duty} ({each.seconds:.0f} s)" for each in told.stale_duties),
                *(f"{each.duty} on {each.process} ({each.seconds:.0f} s)" for each in told.stale_elsewhere),
            ]
        )
        return warn("ready", f"takes work, and does not do its {names}", STALE_ADVICE)
    return ok("ready", "takes work")


def _check_key(client: Client) -> Iterator[Finding]:
    try:
        role = _role(client)
    except Unauthorized as error:
        has_key = "Authorization" in client.transport.connection.headers
        yield fail("key", str(error) if has_key else "the service asks for a key, and there is none", SAY_KEY)
        return
    except TideqError as error:
        yield fail("key", str(error), "look at the service's log")
        return
    yield ok("key", f"may do what {_article(role)} {role} may")
    if role != "worker":
        yield from _check_queue(client)


def _role(client: Client) -> str:
    """By what it may do, with calls that change nothing: no call says it."""
    if not _may(lambda: client.queue.stats()):
        return "worker"
    if not _may(lambda: client.queue.limits()):
        return "producer"
    return "admin" if _may(lambda: client.dlq.replay_all(task_type=NOBODYS_TYPE, dry_run=True)) else "viewer"


def _may(act: Callable[[], object]) -> bool:
    try:
        act()
    except Forbidden:
        return False
    except Unauthorized:
        raise
    except TideqError:
        # Refused for another reason: it was let in.
        return True
    return True


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _check_queue(client: Client) -> Iterator[Finding]:
    try:
        reading = read(client)
    except TideqError as error:
        yield fail("queue", str(error), "look at the service's log")
        return
    yield from check_snapshot(reading)


def check_snapshot(reading: Snapshot) -> Iterator[Finding]:
    """What the numbers say. Pure."""
    yield from _check_pauses(reading)
    yield from _check_types(reading)
    yield _check_age(reading)
    yield from _check_backlogs(reading)


def _check_pauses(reading: Snapshot) -> Iterator[Finding]:
    for limit in reading.limits or ():
        if limit.paused:
            whose = f"type {limit.task_type}" if limit.task_type else "the whole queue"
            why = " ".join(filter(None, [f"by {limit.paused_by}" if limit.paused_by else "", limit.reason or ""]))
            name = f" {limit.task_type}" if limit.task_type else ""
            yield warn("paused", f"{whose} is paused {why}".rstrip(), f"`tideq queue resume{name}` when it may go on")


def _check_types(reading: Snapshot) -> Iterator[Finding]:
    if reading.workers is None:
        return
    deserted = [row for row in type_rows(reading) if row.waiting and not row.worker_count]
    for row in deserted:
        found = f"{row.waiting} of type {row.task_type} wait and no active worker serves it"
        yield warn("workers", found, "start one, or look whether the type is spelt as its handler's")
    if not deserted:
        fleet = reading.stats.workers
        yield ok("workers", f"{fleet.active} active, {fleet.used_capacity} of {fleet.total_capacity} slots in use")
    for worker in reading.workers:
        if worker.status == "unhealthy":
            found = f"{worker.worker_id} is unhealthy ({worker.reason}) and gets no work"
            yield warn("workers", found, "look at its health page and its log")
        if is_held_back(worker):
            found = f"{worker.worker_id} is held back from {held_back_words(worker)}: {reasons(worker.held_back)}"
            yield warn("circuits", found, "look in its log and at `tideq dlq patterns` why those types fail there")


def _check_age(reading: Snapshot) -> Finding:
    age = reading.stats.queue.oldest_age_seconds
    if age > OLD_SECONDS:
        found = f"the oldest waiting task is {age / 3_600:.1f} h old"
        return warn(
            "age", found, "`tideq tasks list --status queued`, then `tideq tasks explain ID` says what holds it"
        )
    return ok("age", f"the oldest waiting task is {age:.0f} s old" if reading.stats.queue.total_depth else "none waits")


def _check_backlogs(reading: Snapshot) -> Iterator[Finding]:
    stats = reading.stats
    if stats.due > MANY_DUE:
        yield warn("recovery", f"{stats.due} tasks fell due and nobody recovers them", "run `tideq monitor`")
    if stats.outbox_length > LONG_OUTBOX:
        found = f"the outbox holds {stats.outbox_length} entries"
        yield warn("outbox", found, "run `tideq replicate`; at TIDEQ_MAX_OUTBOX_ENTRIES submissions are refused")
    if stats.dead_letters:
        yield warn("dead letters", f"{stats.dead_letters} were given up", "`tideq dlq patterns` shows how they died")


def _look(client: Client, path: str) -> tuple[Response, float | None]:
    """The answer, whatever it is, and how far this clock is ahead of the service's; the header has whole seconds."""
    before = time.time()
    answer = client.transport.exchange(get(path, bytes))
    local = (before + time.time()) / 2
    stamp = answer.header("Date")
    return answer, local - (parsedate_to_datetime(stamp).timestamp() + 0.5) if stamp else None
