"""Dead letters: list, patterns, replay."""

from datetime import datetime
from typing import Annotated, Any

from litestar import Request, Response, Router, get, post
from litestar.params import FromPath, QueryParameter

from tideq.api import task_lookup
from tideq.api.edge.auth import Caller
from tideq.api.edge.body import decode
from tideq.api.edge.disconnect import cancel_on_disconnect
from tideq.api.edge.paging import LINK, next_link
from tideq.api.edge.problems import BadRequest
from tideq.api.edge.responses import json_response
from tideq.api.operations import link_to, operation
from tideq.api.request_spans import span_of
from tideq.api.routes.history import CATCH_UP_SECONDS, CURSOR, LIMIT, TASK_TYPE, refused_cursors
from tideq.api.schemas.history import (
    DeadLettersOut,
    PatternsOut,
    ReplayedOut,
    ReplayFilterIn,
    ReplayIn,
    dead_letter_out,
    pattern_out,
)
from tideq.api.schemas.tasks import RetryIn, RetryOut
from tideq.api.schemas.times import instant_ms
from tideq.api.service import InjectedService
from tideq.persistence.dead_letters.dead_letter_list import DeadLetterFilter
from tideq.persistence.dead_letters.replay import ReplayOptions
from tideq.persistence.read.task_list import DEFAULT_LIMIT
from tideq.queue_core.errors import HistoryUnavailable, UnknownPriority
from tideq.queue_core.states import Reason
from tideq.queue_core.telemetry import names as telemetry

Http = Request[Caller, Any, Any]


@get(
    "/",
    opt=operation(
        "viewer",
        "producer",
        answer=DeadLettersOut,
        refuses=(BadRequest, HistoryUnavailable),
        answer_headers=(LINK,),
        links=link_to("dlq_replay", task_id="/tasks/0/task_id"),
    ),
)
async def dead_letters(
    request: Http,
    service: InjectedService,
    task_type: Annotated[str | None, TASK_TYPE] = None,
    reason: Annotated[
        Reason | None, QueryParameter(name="reason", description="Only dead letters with this reason.")
    ] = None,
    pattern: Annotated[
        str | None,
        QueryParameter(
            name="pattern", pattern=r"^[0-9a-f]{16}\Z", description="Only dead letters of this pattern; see `patterns`."
        ),
    ] = None,
    before: Annotated[
        datetime | None, QueryParameter(name="before", description="Only dead letters older than this instant.")
    ] = None,
    limit: Annotated[int, LIMIT] = DEFAULT_LIMIT,
    cursor: Annotated[str | None, CURSOR] = None,
    count: Annotated[bool, QueryParameter(name="count", description="Return the total number.")] = False,
) -> Response[bytes]:
    """List dead letters that were not replayed, the most recent first."""
    history = task_lookup.history_of(service)
    before_ms = instant_ms(before) if before else None
    wanted = DeadLetterFilter(task_type=task_type, reason=reason, pattern=pattern, before_ms=before_ms)
    await history.lag.wait_until_caught_up(CATCH_UP_SECONDS)
    with refused_cursors():
        page = await history.dead_letters.page(wanted, limit, cursor)
    answer = DeadLettersOut(tasks=[dead_letter_out(each) for each in page.dead_letters], next_cursor=page.next_cursor)
    if count:
        answer.total, _ = await history.dead_letters.count(wanted)
    return json_response(answer, headers=next_link(request, page.next_cursor))


@get("/patterns", opt=operation("viewer", "producer", answer=PatternsOut, refuses=(HistoryUnavailable,)))
async def patterns(service: InjectedService) -> Response[bytes]:
    """Group the current dead letters by type, reason and error, the most frequent first."""
    history = task_lookup.history_of(service)
    await history.lag.wait_until_caught_up(CATCH_UP_SECONDS)
    found = await history.dead_letters.patterns()
    return json_response(PatternsOut(patterns=[pattern_out(each) for each in found]))


@post(
    "/{task_id:str}/replay",
    status_code=200,
    opt=operation(
        "producer",
        body=RetryIn,
        needs_body=False,
        answer=RetryOut,
        refuses=task_lookup.REQUEUE_ERRORS,
        links=link_to("tasks_read", "tasks_cancel", task_id="/task_id"),
    ),
)
async def replay(request: Http, task_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Replay one dead letter."""
    body = decode(await request.body() or b"{}", RetryIn)
    spans = service.operation_spans(request, telemetry.REPLAY, task_id)
    return json_response(await task_lookup.requeue(service, service.engine.queue.replay, task_id, body, spans))


@post(
    "/replay",
    status_code=200,
    opt=operation(
        "producer",
        body=ReplayIn,
        answer=ReplayedOut,
        refuses=(UnknownPriority, HistoryUnavailable),
    ),
)
async def replay_all(request: Http, service: InjectedService) -> Response[bytes]:
    """Replay all matching dead letters, or with `dry_run` only count them.

    Dead letters that match now are replayed, the oldest first. Two calls at once replay each of them only once; an
    interrupted call can be repeated.
    """
    body = decode(await request.body(), ReplayIn)
    history, priorities = task_lookup.history_of(service), service.settings.queue.priorities
    if body.new_priority is not None and body.new_priority not in priorities:
        raise UnknownPriority(body.new_priority, tuple(priorities))
    wanted = _filter(body.filter)
    terms = ReplayOptions(keeps_budgets=not body.reset_retry_count, priority=body.new_priority)
    spans = service.operation_spans(request, telemetry.REPLAY)
    work = history.replays.preview(wanted) if body.dry_run else history.replays.run(wanted, terms, on_requeued=spans)
    done = await cancel_on_disconnect(request, service.authenticator, work)
    if not body.dry_run:
        if span := span_of(request):
            span.attributes[telemetry.MESSAGING_BATCH_COUNT] = done.replayed
        details = f"{done.replayed} dead letters; {_in_words(body.filter)}"
        await service.audit.note(request.user.name, "replay", body.filter.task_type or "", details)
    return json_response(ReplayedOut(matched=done.matched, replayed=done.replayed, refused=done.refused))


def _in_words(body: ReplayFilterIn) -> str:
    chosen = {"reason": body.reason, "pattern": body.pattern, "before": body.before}
    return ", ".join(f"{name} {value}" for name, value in chosen.items() if value is not None) or "all of them"


def _filter(body: ReplayFilterIn) -> DeadLetterFilter:
    return DeadLetterFilter(
        task_type=body.task_type,
        reason=body.reason,
        pattern=body.pattern,
        before_ms=instant_ms(body.before) if body.before else None,
    )


router = Router("/api/v1/dlq", route_handlers=[dead_letters, patterns, replay, replay_all])
