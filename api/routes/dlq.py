"""Dead letters: what was given up, how it died, and sending it back."""

from datetime import datetime
from typing import Annotated, Any

from litestar import Request, Response, Router, get, post
from litestar.params import FromPath, QueryParameter

from tideq.api import recall, schemas
from tideq.api.answers import json_answer
from tideq.api.auth import Caller
from tideq.api.calls import call, leads_to
from tideq.api.paging import LINK, next_link
from tideq.api.payloads import decode
from tideq.api.presence import while_present
from tideq.api.problems import BadRequest
from tideq.api.routes.history import CURSOR, LIMIT, SOON_SECONDS, TASK_TYPE, refused_cursors
from tideq.api.service import InjectedService
from tideq.api.tracing import note_about
from tideq.persistence.dead_letters.letters import DeadLetterFilter
from tideq.persistence.dead_letters.replays import Terms
from tideq.persistence.reading.listing import DEFAULT_LIMIT
from tideq.queue_core import telemetry
from tideq.queue_core.errors import HistoryUnavailable, UnknownPriority
from tideq.queue_core.states import Reason

Http = Request[Caller, Any, Any]


@get(
    "/",
    opt=call(
        "viewer",
        "producer",
        answer=schemas.DeadLettersOut,
        refuses=(BadRequest, HistoryUnavailable),
        answer_headers=(LINK,),
        links=leads_to("dlq_replay", task_id="/tasks/0/task_id"),
    ),
)
async def dead_letters(
    request: Http,
    service: InjectedService,
    task_type: Annotated[str | None, TASK_TYPE] = None,
    reason: Annotated[Reason | None, QueryParameter(name="reason", description="Given up for this.")] = None,
    pattern: Annotated[
        str | None,
        QueryParameter(name="pattern", pattern=r"^[0-9a-f]{16}\Z", description="Died this way; see `patterns`."),
    ] = None,
    before: Annotated[datetime | None, QueryParameter(name="before", description="Died before this instant.")] = None,
    limit: Annotated[int, LIMIT] = DEFAULT_LIMIT,
    cursor: Annotated[str | None, CURSOR] = None,
    count: Annotated[bool, QueryParameter(name="count", description="Tell how many there are in all.")] = False,
) -> Response[bytes]:
    """Tasks that were given up and not yet sent back, the latest death first."""
    archive = recall.archive_of(service)
    before_ms = schemas.instant_ms(before) if before else None
    wanted = DeadLetterFilter(task_type=task_type, reason=reason, pattern=pattern, before_ms=before_ms)
    await archive.freshness.catch_up(SOON_SECONDS)
    with refused_cursors():
        page = await archive.dead_letters.page(wanted, limit, cursor)
    answer = schemas.DeadLettersOut(
        tasks=[schemas.dead_letter_out(each) for each in page.dead_letters], next_cursor=page.next_cursor
    )
    if count:
        answer.total, _ = await archive.dead_letters.count(wanted)
    return json_answer(answer, headers=next_link(request, page.next_cursor))


@get("/patterns", opt=call("viewer", "producer", answer=schemas.PatternsOut, refuses=(HistoryUnavailable,)))
async def patterns(service: InjectedService) -> Response[bytes]:
    """What is dead now by type, reason and error, the most frequent first; what was never seen before is new."""
    archive = recall.archive_of(service)
    await archive.freshness.catch_up(SOON_SECONDS)
    found = await archive.dead_letters.patterns()
    return json_answer(schemas.PatternsOut(patterns=[schemas.pattern_out(each) for each in found]))


@post(
    "/{task_id:str}/replay",
    status_code=200,
    opt=call(
        "producer",
        body=schemas.RetryIn,
        needs_body=False,
        answer=schemas.RetryOut,
        refuses=recall.REVIVAL,
        links=leads_to("tasks_read", "tasks_cancel", task_id="/task_id"),
    ),
)
async def replay(request: Http, task_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Send one dead letter back to the queue."""
    asked = decode(await request.body() or b"{}", schemas.RetryIn)
    orders = service.orders(request, telemetry.REPLAY, task_id)
    return json_answer(await recall.revive(service, service.engine.queue.replay, task_id, asked, orders))


@post(
    "/replay",
    status_code=200,
    opt=call(
        "producer",
        body=schemas.ReplayIn,
        answer=schemas.ReplayedOut,
        refuses=(UnknownPriority, HistoryUnavailable),
    ),
)
async def replay_all(request: Http, service: InjectedService) -> Response[bytes]:
    """Send back every dead letter that matches, or with `dry_run` only tell how many do.

    Those that match now, the earliest death first. Pressed twice, each gets one new life; interrupted, it can be
    called again.
    """
    asked = decode(await request.body(), schemas.ReplayIn)
    archive, priorities = recall.archive_of(service), service.settings.queue.priorities
    if asked.new_priority is not None and asked.new_priority not in priorities:
        raise UnknownPriority(asked.new_priority, tuple(priorities))
    wanted = _filter(asked.filter)
    terms = Terms(keeps_budgets=not asked.reset_retry_count, priority=asked.new_priority)
    orders = service.orders(request, telemetry.REPLAY)
    work = archive.replays.preview(wanted) if asked.dry_run else archive.replays.run(wanted, terms, on_revived=orders)
    done = await while_present(request, service.gate, work)
    if not asked.dry_run:
        note_about(request, {telemetry.MESSAGING_BATCH_COUNT: done.replayed})
        told = f"{done.replayed} dead letters; {_in_words(asked.filter)}"
        await service.audit.note(request.user.name, "replay", asked.filter.task_type or "", told)
    return json_answer(schemas.ReplayedOut(matched=done.matched, replayed=done.replayed, refused=done.refused))


def _in_words(asked: schemas.ReplayFilterIn) -> str:
    chosen = {"reason": asked.reason, "pattern": asked.pattern, "before": asked.before}
    return ", ".join(f"{name} {value}" for name, value in chosen.items() if value is not None) or "all of them"


def _filter(asked: schemas.ReplayFilterIn) -> DeadLetterFilter:
    return DeadLetterFilter(
        task_type=asked.task_type,
        reason=asked.reason,
        pattern=asked.pattern,
        before_ms=schemas.instant_ms(asked.before) if asked.before else None,
    )


router = Router("/api/v1/dlq", route_handlers=[dead_letters, patterns, replay, replay_all])
