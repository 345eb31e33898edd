"""Typed end to end: the type checker sees through `@task`."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from tideq import task

@task(max_retries=5)
def resize(url: str, width: int) -> dict[str, int]:
    return {{"width": width}}

{line}
"""


def complaints(tmp_path: Path, line: str) -> list[str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(line=line))
    checker = Path(sys.executable).parent / "basedpyright"
    command = [checker, "--outputjson", "--level", "error", "--pythonpath", sys.executable, program]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return [each["message"] for each in said["generalDiagnostics"]]


def test_a_right_call_is_right(tmp_path: Path) -> None:
    assert complaints(tmp_path, 'resize.submit(url="a", width=640); width = resize("a", 5)["width"] + 1') == []


def test_a_wrong_type_a_missing_and_an_unknown_argument_are_errors(tmp_path: Path) -> None:
    for line in ('resize.submit(url="a", width="b")', 'resize.delay(url="a")', 'resize.submit("a", 1, colour=2)'):
        assert complaints(tmp_path, line), line
