"""The API's OpenAPI document. The page that shows it, `/docs`, is among the dashboard's files."""

from litestar import Response, Router, get
from litestar.di import NamedDependency

from tideq.api.dashboard.pages import POLICY
from tideq.api.edge.responses import JSON
from tideq.api.operations import PUBLIC, operation

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@get("/openapi.json", opt=operation(PUBLIC, answer=None))
async def openapi(document: NamedDependency[bytes]) -> Response[bytes]:
    """Read the OpenAPI document of this service, with its configured values."""
    return Response(document, media_type=JSON, headers=HEADERS)


router = Router("/", route_handlers=[openapi])
