"""The queue's settings, typed and frozen, read once from the environment and passed on.

An unknown variable that starts with `TIDEQ_` is refused by name: a typo must not silently leave a default in place.
Durations are seconds in the environment and milliseconds here.
"""

import difflib
import ipaddress
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from tideq.queue_core.name_rules import NAME, QUEUE_NAME
from tideq.queue_core.retry_policy import MAX_RETRIES, Backoff

MAX_PARTITIONS = 256
"""Limit of the eight bits that hold the partition in a task id."""

CIRCUIT_MODES = ("type", "worker", "off")


class SettingsError(ValueError):
    """A setting is unknown or has a value it cannot have; the message names it."""


class Priority(msgspec.Struct, frozen=True):
    offset_ms: int
    max_retries: int
    timeout_ms: int


DEFAULT_PRIORITIES: dict[str, Priority] = {
    "high": Priority(offset_ms=0, max_retries=5, timeout_ms=300_000),
    "medium": Priority(offset_ms=100_000_000, max_retries=3, timeout_ms=600_000),
    "low": Priority(offset_ms=200_000_000, max_retries=2, timeout_ms=900_000),
}


class Leases(msgspec.Struct, frozen=True):
    assignment_ms: int = 30_000
    heartbeat_timeout_ms: int = 90_000
    max_execution_ms: int = 86_400_000
    max_deliveries: int = 10
    max_losses: int = 3


class Admission(msgspec.Struct, frozen=True):
    soft_depth: int = 100_000
    """Beyond this depth, tasks less urgent than the default priority are refused."""
    high_only_depth: int = 500_000
    """Beyond this depth, all but the most urgent priority are refused."""
    max_depth: int = 1_000_000
    """Beyond this depth, all clients that are not listed are refused."""
    listed_clients: tuple[str, ...] = ()
    client_rate_per_second: float = 0.0
    """0 is no limit."""
    client_burst: int = 1_000
    max_outbox_entries: int = 1_000_000
    max_memory_ratio: float = 0.9
    max_new_lanes_per_day: int = 256
    max_payload_bytes: int = 262_144


class Retention(msgspec.Struct, frozen=True):
    result_ttl_ms: int = 3_600_000
    idempotency_ttl_ms: int = 86_400_000
    dead_letter_ttl_ms: int = 30 * 86_400_000
    has_history: bool = True
    """With history, a finished task stays in the store until it is replicated; without, only for `result_ttl_ms`."""


class Probing(msgspec.Struct, frozen=True):
    interval_ms: int = 60_000
    allowed_cidrs: tuple[str, ...] = ()
    """Networks that health probes of workers may contact; none by default."""


class Circuit(msgspec.Struct, frozen=True):
    """When a failing worker gets no new tasks, and when it is tried again."""

    mode: str = "type"
    """`type`: one circuit for each worker and task type. `worker`: one for each worker. `off`: none."""
    failures: int = 5
    window_ms: int = 60_000
    open_ms: int = 60_000
    trials: int = 3


class Telemetry(msgspec.Struct, frozen=True):
    traces_per_second: float = 100.0
    """New traces a second without OTEL_TRACES_SAMPLER; traces of callers keep their own sampling decision."""
    logs_transitions: bool = True
    service_name: str = "tideq"
    """Service name of API and monitor spans. In the API, OTEL_SERVICE_NAME takes precedence."""


class QueueSettings(msgspec.Struct, frozen=True):
    queue_name: str = "default"
    partition: int = 0
    partitions: tuple[int, ...] = (1,)
    """The partition count; several counts while the number grows: see `partitioning/routing.py`."""
    is_part: bool = False
    """Whether these settings are for one of several partitions: the queue's limits are then enforced elsewhere."""
    default_priority: str = "medium"
    priorities: dict[str, Priority] = msgspec.field(default_factory=lambda: dict(DEFAULT_PRIORITIES))
    leases: Leases = Leases()
    admission: Admission = Admission()
    retention: Retention = Retention()
    backoff: Backoff = Backoff()
    probing: Probing = Probing()
    circuit: Circuit = Circuit()
    telemetry: Telemetry = Telemetry()

    @property
    def partition_count(self) -> int:
        return max(self.partitions)


class Setting(NamedTuple):
    section: str
    field: str
    parse: Callable[[str], object]


def _seconds(text: str) -> int:
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError("must be a positive number of seconds")
    return round(value * 1000)


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError("must be zero or a positive whole number")
    return value


def _some(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError("must be a positive whole number")
    return value


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError("must lie between 0 and 1")
    return value


def _rate(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError("must be zero or a positive number")
    return value


def _circuit_mode(text: str) -> str:
    if text not in CIRCUIT_MODES:
        raise ValueError(f"must be one of {', '.join(CIRCUIT_MODES)}")
    return text


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError("must be 'on' or 'off'")
    return text == "on"


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _queue_name(text: str) -> str:
    if not QUEUE_NAME.fullmatch(text):
        raise ValueError("must be a name: letters, digits, '_', '.', '-', at most 50")
    return text


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a name: letters, digits, '_', '.', '-', at most 64")
    return text


def _clients(text: str) -> tuple[str, ...]:
    return tuple(map(_name, _names(text)))


def _partitions(text: str) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in _names(text))
    if not numbers or not all(1 <= number <= MAX_PARTITIONS for number in numbers):
        raise ValueError(f"must be a number from 1 to {MAX_PARTITIONS}, or several while the number grows, like 2,8")
    return numbers


def _cidrs(text: str) -> tuple[str, ...]:
    return tuple(str(ipaddress.ip_network(name)) for name in _names(text))


def _priorities(text: str) -> dict[str, Priority]:
    """Parse comma-separated `name=offset_seconds:max_retries:timeout_seconds`; defaults that are not named stay."""
    levels = dict(DEFAULT_PRIORITIES)
    for entry in _names(text):
        name, _, numbers = entry.partition("=")
        if numbers.count(":") != 2:
            raise ValueError(f"{entry!r} is not name=offset_seconds:max_retries:timeout_seconds")
        offset, retries, timeout = numbers.split(":")
        levels[_name(name)] = Priority(_offset_ms(offset), _retries(retries), _seconds(timeout))
    return levels


def _offset_ms(text: str) -> int:
    seconds = float(text)
    if not abs(seconds) < 1e9:
        raise ValueError(f"an offset of {text} seconds lies outside -10^9 … 10^9")
    return round(seconds * 1000)


def _retries(text: str) -> int:
    if (retries := _count(text)) > MAX_RETRIES:
        raise ValueError(f"{retries} retries are more than {MAX_RETRIES}")
    return retries


QUEUE_SETTINGS: dict[str, Setting] = {
    "TIDEQ_QUEUE": Setting("", "queue_name", _queue_name),
    "TIDEQ_PARTITIONS": Setting("", "partitions", _partitions),
    "TIDEQ_DEFAULT_PRIORITY": Setting("", "default_priority", str),
    "TIDEQ_PRIORITIES": Setting("", "priorities", _priorities),
    "TIDEQ_ASSIGNMENT_TIMEOUT_SECONDS": Setting("leases", "assignment_ms", _seconds),
    "TIDEQ_HEARTBEAT_TIMEOUT_SECONDS": Setting("leases", "heartbeat_timeout_ms", _seconds),
    "TIDEQ_MAX_EXECUTION_SECONDS": Setting("leases", "max_execution_ms", _seconds),
    "TIDEQ_MAX_UNSTARTED_CLAIMS": Setting("leases", "max_deliveries", _count),
    "TIDEQ_MAX_WORKER_LOSSES": Setting("leases", "max_losses", _count),
    "TIDEQ_DEPTH_REFUSE_LOW": Setting("admission", "soft_depth", _count),
    "TIDEQ_DEPTH_REFUSE_MEDIUM": Setting("admission", "high_only_depth", _count),
    "TIDEQ_DEPTH_REFUSE_ALL": Setting("admission", "max_depth", _count),
    "TIDEQ_DEPTH_EXEMPT_CLIENTS": Setting("admission", "listed_clients", _clients),
    "TIDEQ_CLIENT_RATE_PER_SECOND": Setting("admission", "client_rate_per_second", _rate),
    "TIDEQ_CLIENT_BURST": Setting("admission", "client_burst", _count),
    "TIDEQ_MAX_OUTBOX_ENTRIES": Setting("admission", "max_outbox_entries", _count),
    "TIDEQ_MAX_MEMORY_RATIO": Setting("admission", "max_memory_ratio", _ratio),
    "TIDEQ_MAX_NEW_LANES_PER_DAY": Setting("admission", "max_new_lanes_per_day", _count),
    "TIDEQ_MAX_PAYLOAD_BYTES": Setting("admission", "max_payload_bytes", _count),
    "TIDEQ_RESULT_TTL_SECONDS": Setting("retention", "result_ttl_ms", _seconds),
    "TIDEQ_IDEMPOTENCY_TTL_SECONDS": Setting("retention", "idempotency_ttl_ms", _seconds),
    "TIDEQ_DEAD_LETTER_TTL_SECONDS": Setting("retention", "dead_letter_ttl_ms", _seconds),
    "TIDEQ_PROBE_INTERVAL_SECONDS": Setting("probing", "interval_ms", _seconds),
    "TIDEQ_PROBE_ALLOWED_CIDRS": Setting("probing", "allowed_cidrs", _cidrs),
    "TIDEQ_CIRCUIT": Setting("circuit", "mode", _circuit_mode),
    "TIDEQ_CIRCUIT_FAILURES": Setting("circuit", "failures", _some),
    "TIDEQ_CIRCUIT_WINDOW_SECONDS": Setting("circuit", "window_ms", _seconds),
    "TIDEQ_CIRCUIT_OPEN_SECONDS": Setting("circuit", "open_ms", _seconds),
    "TIDEQ_CIRCUIT_TRIALS": Setting("circuit", "trials", _some),
    "TIDEQ_TRACES_PER_SECOND": Setting("telemetry", "traces_per_second", _rate),
    "TIDEQ_LOG_TRANSITIONS": Setting("telemetry", "logs_transitions", _switch),
    "TIDEQ_SERVICE_NAME": Setting("telemetry", "service_name", str),
    "TIDEQ_RETRY_BASE_SECONDS": Setting("backoff", "base_ms", _seconds),
    "TIDEQ_RETRY_MULTIPLIER": Setting("backoff", "multiplier", _rate),
    "TIDEQ_RETRY_CAP_SECONDS": Setting("backoff", "cap_ms", _seconds),
}

FORMER_NAMES = {
    "TIDEQ_SOFT_DEPTH": "TIDEQ_DEPTH_REFUSE_LOW",
    "TIDEQ_HIGH_ONLY_DEPTH": "TIDEQ_DEPTH_REFUSE_MEDIUM",
    "TIDEQ_MAX_DEPTH": "TIDEQ_DEPTH_REFUSE_ALL",
    "TIDEQ_LISTED_CLIENTS": "TIDEQ_DEPTH_EXEMPT_CLIENTS",
}
"""Accepted as well, so that one environment serves a version and the one before it."""


def read_settings(environ: Mapping[str, str], other_settings: Collection[str] = ()) -> QueueSettings:
    """Returns the settings; raises SettingsError. `other_settings` are names that other parts of the service read."""
    chosen: dict[str, dict[str, Any]] = {}
    for name, text in environ.items():
        if name.startswith("TIDEQ_") and name not in other_settings:
            present = FORMER_NAMES.get(name, name)
            if present != name and present in environ:
                raise SettingsError(f"{name} is the former name of {present}: set one of them")
            setting = _setting_named(present, other_settings)
            chosen.setdefault(setting.section, {})[setting.field] = parse_setting(name, setting, text)
    return _checked(_assemble(chosen))


def _setting_named(name: str, other_settings: Collection[str]) -> Setting:
    if name not in QUEUE_SETTINGS:
        close = difflib.get_close_matches(name, [*QUEUE_SETTINGS, *other_settings], n=1)
        raise SettingsError(f"{name} is not a setting" + (f"; did you mean {close[0]}?" if close else ""))
    return QUEUE_SETTINGS[name]


def parse_setting(name: str, setting: Setting, text: str) -> object:
    try:
        return setting.parse(text)
    except ValueError as error:
        raise SettingsError(f"{name}={text!r}: {error}") from error


def _assemble(chosen: dict[str, dict[str, Any]]) -> QueueSettings:
    defaults = QueueSettings()
    top = chosen.pop("", {})
    for section, fields in chosen.items():
        top[section] = msgspec.structs.replace(getattr(defaults, section), **fields)
    return msgspec.structs.replace(defaults, **top)


def _checked(settings: QueueSettings) -> QueueSettings:
    depths = settings.admission
    if not depths.soft_depth <= depths.high_only_depth <= depths.max_depth:
        raise SettingsError(
            "TIDEQ_DEPTH_REFUSE_LOW, TIDEQ_DEPTH_REFUSE_MEDIUM and TIDEQ_DEPTH_REFUSE_ALL must rise in this order"
        )
    if settings.default_priority not in settings.priorities:
        raise SettingsError(f"TIDEQ_DEFAULT_PRIORITY={settings.default_priority!r} is not a priority level")
    return msgspec.structs.replace(settings, priorities=_within_execution(settings))


def _within_execution(settings: QueueSettings) -> dict[str, Priority]:
    """Returns the levels. A default timeout above the limit is lowered to it; a configured one raises SettingsError."""
    limit_ms, levels = settings.leases.max_execution_ms, dict(settings.priorities)
    for name, level in settings.priorities.items():
        if level.timeout_ms <= limit_ms:
            continue
        if level != DEFAULT_PRIORITIES.get(name):
            raise SettingsError(
                f"TIDEQ_PRIORITIES: the timeout of {name!r}, {level.timeout_ms / 1000:g} s, is longer than "
                f"TIDEQ_MAX_EXECUTION_SECONDS, {limit_ms / 1000:g} s"
            )
        levels[name] = msgspec.structs.replace(level, timeout_ms=limit_ms)
    return levels
