"""The API reference, as an OpenAPI document and as a page that loads nothing from other hosts."""

from litestar import Response, Router, get

from tideq.api.edge.responses import JSON
from tideq.api.openapi.documentation import InjectedDocumentation
from tideq.api.operations import PUBLIC, operation

HTML, SCRIPT, STYLE = "text/html", "text/javascript", "text/css"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@get("/openapi.json", opt=operation(PUBLIC, answer=None))
async def openapi(documentation: InjectedDocumentation) -> Response[bytes]:
    """Read the OpenAPI document of this service, with its configured values."""
    return _answer(documentation.json, JSON)


@get("/docs", opt=operation(PUBLIC, answer=None, media_type=HTML))
async def page(documentation: InjectedDocumentation) -> Response[bytes]:
    """Read the API reference as a page, with a form to try each call."""
    return _answer(documentation.page, HTML)


@get("/docs/page.js", opt=operation(PUBLIC, answer=None, media_type=SCRIPT))
async def script(documentation: InjectedDocumentation) -> Response[bytes]:
    """Read the page's script."""
    return _answer(documentation.script, SCRIPT)


@get("/docs/page.css", opt=operation(PUBLIC, answer=None, media_type=STYLE))
async def style(documentation: InjectedDocumentation) -> Response[bytes]:
    """Read the page's style sheet."""
    return _answer(documentation.style, STYLE)


def _answer(content: bytes, media_type: str) -> Response[bytes]:
    return Response(content, media_type=media_type, headers=HEADERS)


router = Router("/", route_handlers=[openapi, page, script, style])
