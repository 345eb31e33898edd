"""Headers of the application's current OpenTelemetry trace, which a submitted task continues."""

import sys


def trace_headers() -> dict[str, str]:
    """Returns `traceparent` and related headers; empty where OpenTelemetry was never imported."""
    carrier: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.context import get_current

        if get_current():  # otherwise every propagator would run for nothing
            from opentelemetry.propagate import inject

            inject(carrier)
    return carrier
