"""The OpenAPI 3.1 document, generated from the routes."""

from tideq.api.openapi.document import describe

__all__ = ["describe"]
