"""The audit log: actions of operators."""

from typing import Annotated

from litestar import Response, Router, get
from litestar.params import QueryParameter

from tideq.api.edge.responses import json_response
from tideq.api.operations import operation
from tideq.api.schemas.overview import AuditOut, NoteOut
from tideq.api.schemas.times import rfc3339
from tideq.api.service import InjectedService

MAX_NOTES = 1_000


@get("/", opt=operation("viewer", answer=AuditOut))
async def audit(
    service: InjectedService,
    limit: Annotated[
        int, QueryParameter(name="limit", ge=1, le=MAX_NOTES, description="Largest number of entries.")
    ] = 100,
) -> Response[bytes]:
    """List pauses, limits, drains, clean-ups, purges and bulk replays, the latest first; ten thousand are stored."""
    notes = await service.audit.latest(limit)
    return json_response(
        AuditOut(
            notes=[
                NoteOut(
                    at=rfc3339(note.at_ms),
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
