"""Pages of a list: cursors that clients hand back, and where the next page is."""

from typing import Any
from urllib.parse import urlencode

from litestar import Request

from tideq.api.operations import HeaderDoc

LINK = HeaderDoc(
    "Link", "Where the next page is, RFC 8288; missing on the last.", '</api/v1/tasks?cursor=AZVUbjx6>; rel="next"'
)


def next_link(request: Request[Any, Any, Any], cursor: str | None) -> dict[str, str]:
    if cursor is None:
        return {}
    asked = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return {"Link": f'<{request.url.path}?{urlencode([*asked, ("cursor", cursor)])}>; rel="next"'}
