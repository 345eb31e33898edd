"""Random interleavings of everything producers, workers, operators and time can do, against the model.

`MODEL_SEED=7 pytest tests/model` repeats a run; a failure prints the steps that lead to it, shortened, and its seed.
"""

import os

from hypothesis import HealthCheck, Phase, settings

from tests.model.bench import STEP_COUNT, Bench
from tests.model.machine import drive
from tests.model.table import MIN_COUNT, lines, rare

RUN_COUNT = 400
MIN_FULL_RUN_COUNT = 200

SETTINGS = settings(
    max_examples=RUN_COUNT,
    stateful_step_count=STEP_COUNT + 1,  # the first opens the shop
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def test_no_interleaving_departs_from_the_model(bench: Bench, report: list[str]) -> None:
    seed_number = int(os.environ.get("MODEL_SEED", "1"))

    try:
        drive(bench, SETTINGS, seed_number)
    finally:
        runs = f"{bench.run_count} runs, {bench.full_run_count} of them of {STEP_COUNT} steps or more"
        report.append(f"model: {runs}, {bench.step_count} steps compared in all, MODEL_SEED={seed_number}")
        report.extend(lines(bench.fired))

    assert bench.full_run_count >= MIN_FULL_RUN_COUNT
    assert not rare(bench.fired), f"fired less than {MIN_COUNT} times: {rare(bench.fired)}"
