"""The last minutes in steps of time, each with what ended in it. Pure."""

import math
from collections.abc import Iterable, Sequence

from tideq.api import schemas
from tideq.persistence.read.timings import Timing
from tideq.queue_core.queue_picture import OUTCOMES_MS, Outcomes

MAX_STEPS = 90


def step_ms(window_seconds: int) -> int:
    """A whole number of the store's buckets, and never more steps than a chart can show."""
    return max(1, math.ceil(window_seconds * 1000 / MAX_STEPS / OUTCOMES_MS)) * OUTCOMES_MS


def trends_out(
    now_ms: int,
    window_seconds: int,
    tallies: Sequence[Outcomes],
    timings: Sequence[Timing],
    history_lag_seconds: float | None = None,
) -> schemas.TrendsOut:
    width = step_ms(window_seconds)
    first = (now_ms - window_seconds * 1000) // width * width + width
    steps = range(first, now_ms + 1, width)
    return schemas.TrendsOut(
        step_seconds=width // 1000,
        history_lag_seconds=history_lag_seconds,
        steps=[
            _step(
                at,
                [tally for tally in tallies if at <= tally.at_ms < at + width],
                [timing for timing in timings if at <= timing.ended_ms < at + width],
            )
            for at in steps
        ],
    )


def percentile(values: Iterable[float], share: float) -> float | None:
    """The nearest rank: a value that was really seen."""
    ranked = sorted(values)
    return ranked[max(math.ceil(share * len(ranked)) - 1, 0)] if ranked else None


def _step(at_ms: int, tallies: Sequence[Outcomes], timings: Sequence[Timing]) -> schemas.TrendOut:
    waits = [timing.wait_ms / 1000 for timing in timings]
    runs = [timing.run_ms / 1000 for timing in timings]
    return schemas.TrendOut(
        at=schemas.rfc3339(at_ms),
        completed=sum(tally.completed for tally in tallies),
        failed=sum(tally.failed for tally in tallies),
        wait_p50_seconds=percentile(waits, 0.5),
        wait_p95_seconds=percentile(waits, 0.95),
        run_p50_seconds=percentile(runs, 0.5),
        run_p95_seconds=percentile(runs, 0.95),
    )
