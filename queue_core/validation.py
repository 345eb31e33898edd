"""Checks of a submission before it reaches the store. Pure; each check raises `InvalidTask` and names the field.

A task is checked in two parts: the values of its kind, once for all tasks that share them, and its own values.
"""

from collections.abc import Sequence

from tideq.queue_core.errors import InvalidRequest, InvalidTask, PayloadTooLarge
from tideq.queue_core.name_rules import NAME
from tideq.queue_core.retry_policy import MAX_RETRIES, Backoff
from tideq.queue_core.task import NewTask, TraceContext
from tideq.queue_core.task_id import is_task_id

MAX_BATCH = 1_000
MAX_CAPABILITIES = 16
MAX_TAGS = 32
MAX_TAG_LENGTH = 256
MAX_KEY_LENGTH = 255
MAX_SPAN_MS = 2**42


def check_batch(items: Sequence[object]) -> None:
    if not 1 <= len(items) <= MAX_BATCH:
        raise InvalidRequest("tasks", f"{len(items)} tasks; a batch has 1 … {MAX_BATCH}")


def check_kind(task: NewTask, max_execution_ms: int) -> None:
    """Check type, capabilities, priority, client, timeout, retries, head start and backoff."""
    _check_type("task_type", task.task_type, str)
    _check_type("client_id", task.client_id, str)
    _check_type("priority", task.priority, (str, type(None)))
    _check_type("required_capabilities", task.required_capabilities, (tuple, list))
    _check_name("task_type", task.task_type)
    _check_name("client_id", task.client_id)
    for capability in task.required_capabilities:
        _check_name("required_capabilities", capability)
    if len(task.required_capabilities) > MAX_CAPABILITIES:
        raise InvalidTask("required_capabilities", f"more than {MAX_CAPABILITIES} capabilities")
    _check_number("timeout_ms", task.timeout_ms, 1, max_execution_ms)
    _check_number("max_retries", task.max_retries, 0, MAX_RETRIES)
    _check_number("head_start_ms", task.head_start_ms, -MAX_SPAN_MS, MAX_SPAN_MS)
    _check_backoff(task)


def check_own(task: NewTask, max_payload_bytes: int) -> None:
    """Check payload, schedule, tags, idempotency key and id."""
    _check_type("parameters", task.parameters, bytes)
    if len(task.parameters) > max_payload_bytes:
        raise PayloadTooLarge("parameters", len(task.parameters), max_payload_bytes)
    if task.run_at_ms is not None or task.delay_ms is not None:
        _check_schedule(task)
    if task.tags:
        _check_tags(task)
    if task.idempotency_key is not None:
        _check_type("idempotency_key", task.idempotency_key, str)
        if not 1 <= len(task.idempotency_key) <= MAX_KEY_LENGTH:
            raise InvalidTask("idempotency_key", f"must have 1 … {MAX_KEY_LENGTH} characters")
    _check_type("trace", task.trace, TraceContext)
    if task.task_id is not None and not (isinstance(task.task_id, str) and is_task_id(task.task_id)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTask("task_id", f"{task.task_id!r} is not a UUIDv7 in lower case with dashes")


def _check_schedule(task: NewTask) -> None:
    if task.run_at_ms is not None and task.delay_ms is not None:
        raise InvalidTask("run_at", "set either run_at or a delay, not both")
    _check_number("run_at_ms", task.run_at_ms, 0, MAX_SPAN_MS)
    _check_number("delay_ms", task.delay_ms, 0, MAX_SPAN_MS)


def _check_tags(task: NewTask) -> None:
    _check_type("tags", task.tags, dict)
    if len(task.tags) > MAX_TAGS:
        raise InvalidTask("tags", f"more than {MAX_TAGS} tags")
    for name, value in task.tags.items():
        _check_name("tags", name)
        _check_type("tags", value, str)
        if len(value) > MAX_TAG_LENGTH:
            raise InvalidTask("tags", f"a value is longer than {MAX_TAG_LENGTH} characters")


def _check_backoff(task: NewTask) -> None:
    backoff = task.backoff
    if backoff is None:
        return
    _check_type("backoff", backoff, Backoff)
    _check_number("backoff", backoff.base_ms, 0, MAX_SPAN_MS)
    _check_number("backoff", backoff.cap_ms, 0, MAX_SPAN_MS)
    if not 0 < backoff.multiplier <= 1_000:
        raise InvalidTask("backoff", f"a multiplier of {backoff.multiplier} lies outside 0 … 1 000")


def _check_type(field: str, value: object, kinds: type | tuple[type, ...]) -> None:
    if not isinstance(value, kinds):
        raise InvalidTask(field, f"{type(value).__name__} is the wrong type")


def _check_name(field: str, value: str) -> None:
    if not isinstance(value, str) or not NAME.fullmatch(value):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTask(field, f"{value!r} is not a name: letters, digits, '_', '.', '-', at most 64")


def _check_number(field: str, value: int | None, low: int, high: int) -> None:
    if value is None:
        return
    if type(value) is not int:
        raise InvalidTask(field, f"{value!r} is not a whole number")
    if not low <= value <= high:
        raise InvalidTask(field, f"{value} lies outside {low} … {high}")
