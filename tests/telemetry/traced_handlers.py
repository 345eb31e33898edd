"""Handlers of an application that traces, run by a real `tideq worker`."""

from opentelemetry import baggage, trace

from tideq import TaskContext, task

tracer = trace.get_tracer("application")


@task
def twice(context: TaskContext) -> str:
    """Fails the first time."""
    with tracer.start_as_current_span("handler work") as span:
        span.set_attribute("tenant", str(baggage.get_baggage("tenant")))
        span.set_attribute("given", context.traceparent or "")
        if context.attempt == 1:
            raise RuntimeError("not yet")
    return "done"


@task
async def on_loop() -> str:
    with tracer.start_as_current_span("handler work"):
        return "done"


@task(process=True)
def in_child() -> str:
    """The trace it finds itself in."""
    return f"{trace.get_current_span().get_span_context().trace_id:032x}"


@task
def until_called_off(context: TaskContext) -> None:
    while not context.wait(60):
        pass
    context.check_cancelled()
