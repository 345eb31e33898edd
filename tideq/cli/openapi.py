"""`tideq openapi`: the description of the HTTP API, for tools that read it."""

import msgspec

from tideq.api.app import create_app, routes
from tideq.api.openapi import describe
from tideq.api.service import offline_service
from tideq.cli.service_runner import environ_with, say, settings_from


def openapi() -> None:
    """Print the OpenAPI document, as the environment's settings make it. No store is needed."""
    settings = settings_from(environ_with())
    app = create_app(offline_service(settings))
    document = describe(routes(app), settings.queue)
    say(msgspec.json.format(msgspec.json.encode(document)).decode())
