"""Names of spans and attributes, all in one place so that none is defined twice.

Dashboards, alerts and saved searches depend on these names: mention a change in the changelog. Messaging and HTTP names
are those of OpenTelemetry's semantic conventions; our own begin with `tideq.`.
"""

SCOPE = "tideq"
"""The instrumentation scope of all spans."""
SYSTEM = "tideq"
"""`messaging.system`."""

# Spans of a task's life, timed by the store's own instants.
SPAN_LIFECYCLE = "task.lifecycle"
SPAN_SCHEDULED = "task.scheduled"
SPAN_QUEUED = "task.queued"
SPAN_ASSIGNED = "task.assigned"
SPAN_EXECUTING = "task.executing"
SPAN_BACKOFF = "task.backoff"
LIFE_SPANS = (SPAN_LIFECYCLE, SPAN_SCHEDULED, SPAN_QUEUED, SPAN_ASSIGNED, SPAN_EXECUTING, SPAN_BACKOFF)

# Spans of calls are named `<operation> <queue>`.
SEND, RECEIVE, PROCESS, SETTLE = "send", "receive", "process", "settle"
RETRY, REPLAY, CANCEL = "retry", "replay", "cancel"

MESSAGING_SYSTEM = "messaging.system"
MESSAGING_OPERATION_NAME = "messaging.operation.name"
MESSAGING_OPERATION_TYPE = "messaging.operation.type"
MESSAGING_DESTINATION = "messaging.destination.name"
MESSAGING_MESSAGE_ID = "messaging.message.id"
MESSAGING_BATCH_COUNT = "messaging.batch.message_count"
MESSAGING_CLIENT_ID = "messaging.client.id"
ERROR_TYPE = "error.type"

HTTP_METHOD = "http.request.method"
HTTP_STATUS = "http.response.status_code"
HTTP_ROUTE = "http.route"
URL_PATH = "url.path"
URL_SCHEME = "url.scheme"

TASK_TYPE = "tideq.task.type"
TASK_ATTEMPT = "tideq.task.attempt"
TASK_PRIORITY = "tideq.task.priority"
TASK_REASON = "tideq.task.reason"
TASK_STATE = "tideq.task.state"
REFUSAL = "tideq.refusal"
"""Why the service refused a result after the worker had moved on."""

EXCEPTION_EVENT = "exception"
EXCEPTION_TYPE = "exception.type"
EXCEPTION_MESSAGE = "exception.message"
EXCEPTION_STACKTRACE = "exception.stacktrace"
