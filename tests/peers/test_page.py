"""A run as people read it: ratios, what was reached, and the place of the tables in the docs."""

from pathlib import Path

import pytest

from bench.peers import page
from bench.peers.catalogue import LEAN, OURS
from bench.peers.environments import ROOT
from bench.peers.goals import goals
from bench.peers.rounds import BEST, Measured
from bench.peers.run import Run, read_json, write_json
from bench.peers.samples import Sample


def measured(*samples: Sample) -> Measured:
    for number, each in enumerate(samples):
        each.round_number = number
    return Measured(settings={BEST: {"concurrency": 7}}, samples={BEST: list(samples)})


def sample(processed: float, single: float = 100.0, p50_ms: float = 2.0) -> Sample:
    found = Sample(version="1.2", processed=processed, single=single, bulk=1_000.0, p50_ms=p50_ms, p99_ms=9.0)
    found.bulk_cpu_us, found.work_cpu_us = {"client": 1.0, "store": 1.0}, {"workers": 2.0, "store": 2.0}
    return found


@pytest.fixture
def run() -> Run:
    results = {
        OURS: measured(sample(9_000), sample(12_000), sample(30_000)),
        "Dramatiq": measured(sample(3_000), sample(3_000), sample(3_000)),
        "RQ": measured(sample(100, p50_ms=0.5)),
        "BullMQ": measured(sample(10_000, single=200.0), sample(10_000, single=200.0), sample(10_000, single=200.0)),
        "pg-boss": Measured(problem="cannot be installed: no network"),
    }
    return Run("a machine", "quick", "on", results)


def test_ratios_are_made_round_by_round(run: Run) -> None:
    ratio = run.ratio(OURS, "Dramatiq", "processed")

    assert ratio is not None
    assert ratio.samples == (3.0, 4.0, 10.0)


def test_a_peer_with_fewer_rounds_is_compared_in_those_it_took(run: Run) -> None:
    ratio = run.ratio(OURS, "RQ", "processed")

    assert ratio is not None
    assert ratio.samples == (90.0,)


def test_a_round_that_one_of_them_missed_is_compared_with_nothing(run: Run) -> None:
    del run.results["Dramatiq"].samples[BEST][1]

    ratio = run.ratio(OURS, "Dramatiq", "processed")

    assert ratio is not None
    assert ratio.samples == (3.0, 10.0)


def test_goals_are_held_against_the_best_that_took_part(run: Run) -> None:
    verdicts = {goal.name: goal.verdict for goal in goals(run)}

    assert verdicts == {
        "processed/s against the best Python library (Dramatiq)": "reached",
        "processed/s against BullMQ": "reached",
        "bulk enqueue against the best peer (BullMQ)": "reached",
        "single submits against BullMQ, each with its best number at once": "missed",
        "single submits against BullMQ, one after the other": "missed",
        "pickup p50 at 200 tasks/s against the best peer's + 2 ms (RQ)": "reached",
    }


def test_what_a_service_takes_is_held_against_one_caller(run: Run) -> None:
    took = sample(0)
    took.single_at_once = 500.0
    run.results[LEAN] = measured(took)

    taken = next(goal for goal in goals(run) if "32 connections" in goal.name)

    assert (taken.measured, taken.verdict) == ("2.50 ×", "reached")


def test_single_submits_are_held_against_each_at_its_own_best(run: Run) -> None:
    for mine in run.results["TideQ"].samples[BEST]:
        mine.single_crowd = 450.0
    for theirs in run.results["BullMQ"].samples[BEST]:
        theirs.single_at_once, theirs.single_crowd = 300.0, 250.0

    best = next(goal for goal in goals(run) if "best number at once" in goal.name)

    assert (best.measured, best.verdict) == ("1.50 ±0 % ×", "reached")


def test_the_text_has_everybody_and_says_who_is_missing(run: Run) -> None:
    text = page.text(run)

    assert "| TideQ | 100.0 ±0 % | – | – | 1 000 ±0 % | 12 000 ±88 % | 1.00 ±0 % | 2.00 ±0 % / 9.00 ±0 % |" in text
    assert "| RQ | 100.0 | – | – | 1 000 | 100.0 | 90.0 | 0.50 / 9.00 |" in text
    assert "| BullMQ | 6.00 ±0 % | 1.00 ±0 % | 1.00 ±0 % | 2.00 ±0 % | 3.00 ±0 % | – |" in text
    assert "| TideQ: submitted in bulk | 2.00 ±0 % | 1.00 ±0 % | – | 1.00 ±0 % |" in text
    assert "| TideQ: worked off | 4.00 ±0 % | – | 2.00 ±0 % | 2.00 ±0 % |" in text
    assert "| RQ | 1.2 | redis | concurrency 7 |" in text
    assert "- pg-boss: cannot be installed: no network" in text


def test_tables_are_written_between_the_marks_and_nowhere_else(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")

    page.write(path, run)
    once = path.read_text()
    page.write(path, run)

    assert once.startswith(f"before\n{page.BEGIN}\n")
    assert once.endswith(f"{page.END}\nafter\n")
    assert "old" not in once
    assert path.read_text() == once


def test_a_page_without_a_place_for_tables_is_left_alone(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("nothing here\n")

    with pytest.raises(ValueError, match="lacks the markers"):
        page.write(path, run)
    assert path.read_text() == "nothing here\n"


def test_the_docs_have_a_place_for_tables() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()

    assert text.count(page.BEGIN) == text.count(page.END) == 1


def test_what_is_written_as_json_is_read_back(run: Run, tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", run)

    assert read_json(tmp_path / "run.json") == run
