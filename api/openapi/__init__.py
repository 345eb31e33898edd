"""The API described in OpenAPI 3.1, made from the routes themselves, and the page that shows it."""

from tideq.api.openapi.document import describe

__all__ = ["describe"]
