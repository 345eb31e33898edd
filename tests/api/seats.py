"""One application for many tests: building it is 56 ms of the processor and the same work every time, so each test
only puts its own service into it. What a service counts, knows and forbids is the test's own."""

from typing import Any

import msgspec

from tideq.api.app import create_app
from tideq.api.service import Service, offline_service
from tideq.api.settings import ServiceSettings


class Seat:
    """An application and the service it was built around, which becomes that of whoever sits here."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._service = offline_service(settings)
        self.app: Any = create_app(self._service)

    def take(self, service: Service) -> None:
        """Shared, not copied: what the test changes in its service later is changed in the application too."""
        self._service.__dict__ = service.__dict__


class Seats:
    """One for each kind of settings that the routes and their description are built from."""

    def __init__(self) -> None:
        self._seats: dict[bytes, Seat] = {}

    def app_of(self, service: Service) -> Any:
        settings = service.settings
        kind = settings.hot_path.encode() + msgspec.json.encode(msgspec.structs.replace(settings.queue, queue_name="q"))
        if kind not in self._seats:
            self._seats[kind] = Seat(settings)
        self._seats[kind].take(service)
        return self._seats[kind].app
