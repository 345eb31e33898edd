"""Groups the tasks that ended in the last minutes into steps of time. Pure functions."""

import math
from collections.abc import Iterable, Sequence

from tideq.api.schemas.overview import TrendOut, TrendsOut
from tideq.api.schemas.times import rfc3339
from tideq.persistence.read.timings import Timing
from tideq.queue_core.queue_picture import OUTCOMES_MS, Outcomes

MAX_STEPS = 90


def step_ms(window_seconds: int) -> int:
    """A multiple of the store's buckets, so that there are at most `MAX_STEPS` steps."""
    return max(1, math.ceil(window_seconds * 1000 / MAX_STEPS / OUTCOMES_MS)) * OUTCOMES_MS


def trends_out(
    now_ms: int,
    window_seconds: int,
    outcomes: Sequence[Outcomes],
    timings: Sequence[Timing],
    history_lag_seconds: float | None = None,
) -> TrendsOut:
    width = step_ms(window_seconds)
    first = (now_ms - window_seconds * 1000) // width * width + width
    steps = range(first, now_ms + 1, width)
    return TrendsOut(
        step_seconds=width // 1000,
        history_lag_seconds=history_lag_seconds,
        steps=[
            _step(
                at,
                [outcome for outcome in outcomes if at <= outcome.at_ms < at + width],
                [timing for timing in timings if at <= timing.ended_ms < at + width],
            )
            for at in steps
        ],
    )


def percentile(values: Iterable[float], share: float) -> float | None:
    """By nearest rank, so a value that occurred."""
    ranked = sorted(values)
    return ranked[max(math.ceil(share * len(ranked)) - 1, 0)] if ranked else None


def _step(at_ms: int, outcomes: Sequence[Outcomes], timings: Sequence[Timing]) -> TrendOut:
    waits = [timing.wait_ms / 1000 for timing in timings]
    runs = [timing.run_ms / 1000 for timing in timings]
    return TrendOut(
        at=rfc3339(at_ms),
        completed=sum(outcome.completed for outcome in outcomes),
        failed=sum(outcome.failed for outcome in outcomes),
        wait_p50_seconds=percentile(waits, 0.5),
        wait_p95_seconds=percentile(waits, 0.95),
        run_p50_seconds=percentile(runs, 0.5),
        run_p95_seconds=percentile(runs, 0.95),
    )
