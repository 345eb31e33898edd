"""Fixtures for pytest, known to it through the distribution's entry point."""

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tideq.testing import LocalService


@pytest.fixture
def tideq_service() -> "Generator[LocalService]":
    """The whole service in this process, with an empty queue; decorators and chains submit to it."""
    from tideq.application.connection import use
    from tideq.testing import local_service

    with local_service() as service, use(service.client):
        yield service
