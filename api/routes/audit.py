"""Who did what to the queue as a whole."""

from typing import Annotated

from litestar import Response, Router, get
from litestar.params import QueryParameter

from tideq.api import schemas
from tideq.api.edge.responses import json_response
from tideq.api.operations import operation
from tideq.api.service import InjectedService

MAX_TOLD = 1_000


@get("/", opt=operation("viewer", answer=schemas.AuditOut))
async def audit(
    service: InjectedService,
    limit: Annotated[int, QueryParameter(name="limit", ge=1, le=MAX_TOLD, description="The most to tell.")] = 100,
) -> Response[bytes]:
    """Pauses, limits, drains, clean-ups, purges and bulk replays, the latest first; ten thousand are kept."""
    notes = await service.audit.latest(limit)
    return json_response(
        schemas.AuditOut(
            notes=[
                schemas.NoteOut(
                    at=schemas.rfc3339(note.at_ms),
                    by=note.by,
                    action=note.action,
                    target=note.target,
                    details=note.details,
                )
                for note in notes
            ]
        )
    )


router = Router("/api/v1/audit", route_handlers=[audit])
