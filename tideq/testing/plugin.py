"""Fixtures for pytest, registered by the distribution's entry point."""

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tideq.testing import LocalService


@pytest.fixture
def tideq_service() -> "Generator[LocalService]":
    """The whole service in this process, with an empty queue; `@task` functions and `tq(…)` chains submit to it."""
    from tideq.application.connection import use
    from tideq.testing import local_service

    with local_service() as service, use(service.client):
        yield service
