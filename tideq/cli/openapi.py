"""`tideq openapi`: prints the OpenAPI document of the HTTP API."""

import msgspec

from tideq.api.app import litestar_app, routes
from tideq.api.openapi import describe
from tideq.api.service import offline_service
from tideq.cli.output import print_line
from tideq.cli.service_runner import environ_with, settings_from


def openapi() -> None:
    """Print the OpenAPI document for the settings of the environment. No store is needed."""
    settings = settings_from(environ_with())
    app = litestar_app(offline_service(settings))
    document = describe(routes(app), settings.queue)
    print_line(msgspec.json.format(msgspec.json.encode(document)).decode())
