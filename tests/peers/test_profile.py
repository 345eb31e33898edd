"""What a profile says, from stacks as py-spy writes them."""

from bench.peers.environments import ROOT
from bench.peers.profile import BEGIN, END, LOOP, library_of, read, text

STACKS = f"""
run (/usr/lib/python3.11/asyncio/runners.py:118);send ({ROOT}/.venv/lib/python3.11/site-packages/uvicorn/http.py:9) 30
run (/usr/lib/python3.11/asyncio/runners.py:118);submit (x) ({ROOT}/queue_core/queue.py:7) 50
run (/usr/lib/python3.11/asyncio/runners.py:118) 20
"""


def test_time_counts_for_the_last_of_a_stack() -> None:
    assert read(STACKS) == {("uvicorn", "send"): 30, ("TideQ: queue_core", "submit (x)"): 50, (LOOP, "run"): 20}


def test_links_inside_the_package_are_the_folders_they_lead_to() -> None:
    assert library_of(f"{ROOT}/tideq/api/routes/tasks.py") == library_of(f"{ROOT}/api/routes/tasks.py") == "TideQ: api"


def test_the_text_has_shares_by_library_and_the_functions_that_take_most() -> None:
    said = text({"API": read(STACKS), "worker": read("f (/usr/lib/python3.11/threading.py:1) 5")})

    assert "| TideQ: queue_core | 50 | – |" in said
    assert f"| {LOOP} | 20 | 100 |" in said
    assert "- API: `submit (x)` (TideQ: queue_core) 50 %, `send` (uvicorn) 30 %" in said


def test_the_docs_have_a_place_for_the_profile() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()

    assert page.count(BEGIN) == page.count(END) == 1
