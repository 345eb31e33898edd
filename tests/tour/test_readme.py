"""The README's example runs as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.kit import Kit
from tests.stores import StoreUnderTest

README = Path(__file__).parents[2] / "README.md"


async def test_the_readmes_example_completes_its_task(
    kit: Kit, store: StoreUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, Any] = {}

    exec(example, names)  # noqa: S102 - it is our own page
    await names["once_around"](store.url)

    assert capsys.readouterr().out == "completed\n"
