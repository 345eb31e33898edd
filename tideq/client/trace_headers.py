"""The trace an application is in, where it uses OpenTelemetry: a task continues it."""

import sys


def trace_headers() -> dict[str, str]:
    """`traceparent` and what goes with it. An application that never imported OpenTelemetry has no trace."""
    carrier: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.context import get_current

        if get_current():  # else every propagator would be asked for nothing
            from opentelemetry.propagate import inject

            inject(carrier)
    return carrier
