"""The OpenAPI 3.1 document, generated from the routes, and the page that shows it."""

from tideq.api.openapi.document import describe

__all__ = ["describe"]
