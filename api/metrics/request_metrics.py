"""Counters of one process, and the timer of each request.

Plain numbers, turned into samples only for a scrape: counting a request costs 1.4 µs. Each process behind a port counts
for itself and labels its samples with `process`, so that they can be added up.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from tideq.api.edge.problems import TYPE_PREFIX, problem_of
from tideq.queue_core.errors import OutboxFull, QueueFull, StoreFull, TooManyNewLanes, TooManySubmissions
from tideq.queue_core.samples import Counters, Labels, Sample, SampleHistogram, Samples, TypeNames

OVERLOADS = tuple(kind.code for kind in (QueueFull, TooManySubmissions, OutboxFull, StoreFull, TooManyNewLanes))


class ProcessMetrics:
    def __init__(self, counters: Counters | None = None) -> None:
        self.process = str(os.getpid())
        self.requests: defaultdict[tuple[str, str, int], SampleHistogram] = defaultdict(SampleHistogram)
        """By route, method and the hundreds of the status."""
        self.refusals: Counter[str] = Counter(dict.fromkeys(OVERLOADS, 0))
        """By the problem's code."""
        self.claims = SampleHistogram()
        """Duration of the store's call for a claim, without waiting for work."""
        self.submitted_count = 0
        self.claimed_count = 0
        self.undelivered_count = 0
        """Responses with tasks that did not reach the client."""
        self.listener_count = 0
        self.cut_off_count = 0
        self.types = TypeNames()
        self.counters = counters or Counters()
        """Counters of background duties in this process."""

    def note_claim(self, task_count: int, seconds: float) -> None:
        self.claimed_count += task_count
        self.claims.note(seconds)

    def note_request(self, route: str, method: str, status: int, seconds: float) -> None:
        self.requests[route, method, status // 100].note(seconds)

    def note_refusal(self, error: Exception) -> None:
        self.refusals[problem_of(error)[0].type.removeprefix(TYPE_PREFIX)] += 1

    def samples(self, waiting_poll_count: int = 0, skipped_event_count: int = 0) -> Samples:
        own = (self.process,)
        values: dict[str, Sample] = {
            "tideq_claim_duration_seconds": self.claims,
            "tideq_tasks_submitted_total": self.submitted_count,
            "tideq_tasks_claimed_total": self.claimed_count,
            "tideq_undelivered_claims_total": self.undelivered_count,
            "tideq_event_listeners_cut_off_total": self.cut_off_count,
            "tideq_event_listeners": self.listener_count,
            "tideq_waiting_polls": waiting_poll_count,
            "tideq_events_skipped_total": skipped_event_count,
        }
        refusals: dict[Labels, Sample] = {(*own, problem): count for problem, count in self.refusals.items()}
        return {
            **{metric: {own: value} for metric, value in values.items()},
            "tideq_refusals_total": refusals,
            **self._requests(own),
            **self.counters.samples(self.process),
        }

    def _requests(self, own: Labels) -> Samples:
        counts: dict[Labels, Sample] = {}
        by_route: defaultdict[Labels, SampleHistogram] = defaultdict(SampleHistogram)
        for (route, method, hundreds), noted in self.requests.items():
            counts[(*own, route, method, f"{hundreds}xx")] = noted.count
            by_route[(*own, route)].add(noted)
        return {"tideq_http_requests_total": counts, "tideq_http_request_duration_seconds": {**by_route}}


class RequestTimer:
    """Times one request from routing to the response. Counted by route, never by path, which clients choose freely."""

    def __init__(self, metrics: ProcessMetrics, scope: Any) -> None:
        self._metrics = metrics
        self._scope = scope
        self._began = time.perf_counter()

    def end(self, status: int) -> None:
        scope, seconds = self._scope, time.perf_counter() - self._began
        self._metrics.note_request(scope["path_template"], scope["method"], status, seconds)


StartTimer = Callable[[Any], RequestTimer]
"""Called with the request's scope after routing."""
