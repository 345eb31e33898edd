"""Unknown query parameters are an error: a typo must not silently widen a list or a clean-up."""

import difflib
import functools
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.params import QueryParameter

from tideq.api.edge.problems import BadRequest


async def check_query(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A Litestar guard for the whole application. Handlers outside the API read their query themselves."""
    if not connection.scope["query_string"] or not isinstance(handler, HTTPRouteHandler):
        return
    declared = query_names(handler)
    for name in connection.query_params:
        if name not in declared:
            close = difflib.get_close_matches(name, declared, n=1)
            raise BadRequest(
                f"{name!r} is not a parameter of this call" + (f"; did you mean {close[0]!r}?" if close else "")
            )


@functools.cache
def query_names(handler: BaseRouteHandler) -> frozenset[str]:
    fields = handler.parsed_fn_signature.parameters.values()
    return frozenset(
        field.kwarg_definition.name or field.name
        for field in fields
        if isinstance(field.kwarg_definition, QueryParameter)
    )
