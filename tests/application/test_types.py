"""Typed end to end: the type checker sees through `@task` and `tq(…)`."""

import json
import re
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from typing import NotRequired, TypedDict

from tideq import task, tq

@task(max_retries=5)
def resize(url: str, width: int) -> dict[str, int]:
    return {{"width": width}}

class CrawlPayload(TypedDict):
    url: str
    depth: NotRequired[int]

async def crawl(payload: CrawlPayload) -> None: ...

tq("crawl", CrawlPayload).set_worker(crawl)
{line}
"""


def complaints(tmp_path: Path, line: str) -> list[str]:
    return complaints_about(tmp_path, PROGRAM.format(line=line))


def complaints_about(tmp_path: Path, text: str) -> list[str]:
    program = tmp_path / "program.py"
    program.write_text(text)
    checker = Path(sys.executable).parent / "basedpyright"
    command = [checker, "--outputjson", "--level", "error", "--pythonpath", sys.executable, program]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return [each["message"] for each in said["generalDiagnostics"]]


def test_a_right_call_is_right(tmp_path: Path) -> None:
    assert complaints(tmp_path, 'resize.submit(url="a", width=640); width = resize("a", 5)["width"] + 1') == []


def test_a_wrong_type_a_missing_and_an_unknown_argument_are_errors(tmp_path: Path) -> None:
    for line in ('resize.submit(url="a", width="b")', 'resize.delay(url="a")', 'resize.submit("a", 1, colour=2)'):
        assert complaints(tmp_path, line), line


def test_a_chains_payload_and_options_are_checked_also_after_add(tmp_path: Path) -> None:
    right = (
        'chain = tq("crawl", CrawlPayload).set_worker(crawl).set_worker_count(3).add({"url": "a"})',
        'last = chain.add({"url": "b", "depth": 1}, {"max_retries": 3}).add({"url": "c"}, priority="high")',
        "task_ids: list[str] = [chain.task_id, last.task_id]; print(task_ids)",
        'tq("mail").add({"anything": object()}); depth = tq.stats().queue.total_depth + 1',
    )
    wrong = (
        'tq("crawl", CrawlPayload).add({"wrong": "field"})',
        'tq("crawl", CrawlPayload).add({"url": "a"}).add({"wrong": "field"})',
        'tq("crawl", CrawlPayload).add({"url": "a"}, {"maxAttempts": 3})',
        'tq("crawl", CrawlPayload).add({"url": "a"}, max_retires=3)',
        'tq("crawl", CrawlPayload).set_woker(crawl)',
        "tq.processBatch()",
    )

    assert complaints(tmp_path, "\n".join(right)) == []
    for line in wrong:
        assert complaints(tmp_path, line), line


def test_the_python_programs_of_the_guide_are_right(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)

    assert len(programs) == 2
    for program in programs:
        assert complaints_about(tmp_path, program) == []
