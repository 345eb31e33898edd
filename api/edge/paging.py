"""The Link header of a page: where the next page is."""

from typing import Any
from urllib.parse import urlencode

from litestar import Request

from tideq.api.operations import HeaderDoc

LINK = HeaderDoc(
    "Link", "The address of the next page, RFC 8288; absent on the last.", '</api/v1/tasks?cursor=AZVUbjx6>; rel="next"'
)


def next_link(request: Request[Any, Any, Any], cursor: str | None) -> dict[str, str]:
    if cursor is None:
        return {}
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return {"Link": f'<{request.url.path}?{urlencode([*query, ("cursor", cursor)])}>; rel="next"'}
