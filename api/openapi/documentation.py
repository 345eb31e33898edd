"""The document and the page as they are served: made at the first request, then cached."""

from collections.abc import Callable
from functools import cached_property
from importlib.resources import files
from typing import Any

import msgspec
from litestar.di import NamedDependency

from tideq.api.openapi.document import Routes, describe
from tideq.api.openapi.page import page_of
from tideq.queue_core.settings import QueueSettings


class Documentation:
    def __init__(self, routes: Callable[[], Routes], settings: QueueSettings) -> None:
        self._routes = routes
        self._settings = settings

    @cached_property
    def document(self) -> dict[str, Any]:
        return describe(self._routes(), self._settings)

    @cached_property
    def json(self) -> bytes:
        return msgspec.json.encode(self.document)

    @cached_property
    def page(self) -> bytes:
        return page_of(self.document).encode()

    @cached_property
    def script(self) -> bytes:
        return _file("page.js")

    @cached_property
    def style(self) -> bytes:
        return _file("page.css")


def _file(name: str) -> bytes:
    return files("tideq.api.openapi").joinpath("static", name).read_bytes()


InjectedDocumentation = NamedDependency[Documentation]
"""The documentation as a route's argument."""
