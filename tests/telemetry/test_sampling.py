"""Whoever began a trace decides; what begins here is limited, or as OTEL_TRACES_SAMPLER says."""

from collections.abc import Callable, Iterator

import pytest

from tests.telemetry.sink import Sink
from tideq.queue_core.telemetry.trace_context import TraceParent
from tideq.telemetry.otel_tracing import OtelTracing, TracesPerSecond
from tideq.telemetry.setup import make_tracing

SAMPLED, UNSAMPLED = TraceParent("1" * 32, "2" * 16, 1), TraceParent("1" * 32, "2" * 16, 0)
Make = Callable[..., OtelTracing]


@pytest.fixture
def make(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made = list[OtelTracing]()

    def make(sampler: str = "", per_second: float = 100) -> OtelTracing:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url}
        if sampler:
            monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
            environ["OTEL_TRACES_SAMPLER"] = sampler
        made.append(make_tracing(environ, per_second, "tideq"))
        return made[-1]

    yield make
    for tracing in made:
        tracing.close()


def roots(tracing: OtelTracing, count: int) -> int:
    return sum(tracing.begin(None, "a").is_sampled for _ in range(count))


def test_a_second_begins_so_many_traces() -> None:
    now = 0.0
    limit = TracesPerSecond(10, clock=lambda: now)

    first = sum(limit.take() for _ in range(50))
    now = 0.5
    second = sum(limit.take() for _ in range(50))
    now = 100.0
    third = sum(limit.take() for _ in range(50))

    assert (first, second, third) == (10, 5, 10)


def test_a_batch_is_paid_for_before_the_next_is_sampled() -> None:
    now = 0.0
    limit = TracesPerSecond(10, clock=lambda: now)
    assert limit.take()
    limit.charge(99)
    now = 8.9
    assert not limit.take()
    now = 9.2
    assert limit.take()


def test_zero_begins_none() -> None:
    assert not TracesPerSecond(0).take()


def test_by_default_roots_are_limited_and_parents_count(make: Make) -> None:
    tracing = make(per_second=3)

    assert roots(tracing, 100) == 3
    assert all(tracing.begin(SAMPLED, "a").is_sampled for _ in range(100))
    assert not tracing.begin(UNSAMPLED, "a").is_sampled


@pytest.mark.parametrize(
    ("sampler", "of_roots", "of_sampled", "of_unsampled"),
    [
        ("always_on", 100, True, True),
        ("always_off", 0, False, False),
        ("parentbased_always_on", 100, True, False),
        ("parentbased_always_off", 0, True, False),
        ("traceidratio", 100, True, True),
        ("parentbased_traceidratio", 100, True, False),
    ],
)
def test_a_sampler_that_was_asked_for_decides(
    make: Make, sampler: str, of_roots: int, of_sampled: bool, of_unsampled: bool
) -> None:
    tracing = make(sampler)

    assert roots(tracing, 100) == of_roots
    assert tracing.begin(SAMPLED, "a").is_sampled == of_sampled
    assert tracing.begin(UNSAMPLED, "a").is_sampled == of_unsampled


def test_a_child_is_of_its_parents_trace_and_has_its_other_flags(make: Make) -> None:
    child = make().begin(TraceParent("1" * 32, "2" * 16, 3), "a")

    assert (child.trace_id, child.flags) == ("1" * 32, 3)
    assert child.span_id != "2" * 16
