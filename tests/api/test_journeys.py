"""How many files a request or an event crosses: docs/architecture.md shows them, and their number must not grow."""

import re
from collections.abc import Sequence

import pytest

from tests.api.running import SWITCHES
from tests.architecture.journeys import PAGE, trace_journeys
from tests.stores import StoreUnderTest

MAX_PYTHON_FILES = {"submission": 29, "poll": 30, "event": 16}
"""As measured. docs/architecture.md names what they should come to."""


@pytest.mark.skipif(bool(SWITCHES), reason="the page shows the service as it runs by default")
async def test_journeys_cross_the_files_that_the_page_shows_and_no_more(
    store: StoreUnderTest, database_url: str
) -> None:
    journeys = await trace_journeys(store.url, database_url)

    for name, files in journeys.items():
        assert _shown(name) == sorted(files), f"{name}: run `make maps`"
        assert sum(file.endswith(".py") for file in files) <= MAX_PYTHON_FILES[name]


def _shown(journey: str) -> Sequence[str]:
    _, _, rest = PAGE.read_text().partition(f"<!-- map: journey-{journey} -->")
    return sorted(re.findall(r"^\| \[(\S+)\]", rest.partition("<!-- end -->")[0], re.MULTILINE))
