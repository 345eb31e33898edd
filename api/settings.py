"""Settings of the HTTP service besides the queue's own: address, authentication, store, limits."""

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec

from tideq.persistence.settings import HISTORY_SETTINGS, HistorySettings
from tideq.queue_core.settings import QueueSettings, Setting, SettingsError, parse_setting, read_settings
from tideq.queue_core.store.connect import COMMAND_TIMEOUT_SECONDS

Auth = Literal["keys", "off"]
Switch = Literal["on", "off"]
HttpProtocol = Literal["tideq", "uvicorn"]
MAX_BULK_BODY_BYTES = 16 * 1024 * 1024
"""Largest body of a call about many tasks."""
BODY_OVERHEAD_BYTES = 64 * 1024


class ServiceSettings(msgspec.Struct, frozen=True):
    host: str = "127.0.0.1"
    port: int = 8080
    auth: Auth = "keys"
    redis_url: str = ""
    durability_timeout_ms: int = 2_000
    """How long a submission may wait for its durability level; below the store's own timeout."""
    slow_client_ms: int = 20_000
    """How long a client may take for a request's head, every 16 KiB of its body, and every 16 KiB of a response."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names accepted while authentication is off, besides local ones."""
    hot_path: Switch = "on"
    """Whether the calls made for every task are answered without the framework; the answers are the same."""
    http_protocol: HttpProtocol = "tideq"
    """`uvicorn` has no limits for heads and slow clients, and drops the body of a request that offers an upgrade."""
    trace_url_template: str = ""
    """Address of a trace in a viewer, with `{trace_id}` in it."""
    history: HistorySettings = HistorySettings()
    queue: QueueSettings = QueueSettings()

    @property
    def max_body_bytes(self) -> int:
        """Largest body of a call about one task: its payload and everything else."""
        return self.queue.admission.max_payload_bytes + BODY_OVERHEAD_BYTES

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65_535:
        raise ValueError("must lie between 0 and 65535")
    return port


def _one_of(values: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(f"must be {' or '.join(map(repr, values))}")
        return text

    return parse


def _short_time(text: str) -> int:
    seconds = float(text)
    if not 0 < seconds < COMMAND_TIMEOUT_SECONDS:
        raise ValueError(f"must lie between 0 and {COMMAND_TIMEOUT_SECONDS:g} seconds")
    return round(seconds * 1000)


def _slow_client_time(text: str) -> int:
    seconds = float(text)
    if not 0 < seconds <= 600:
        raise ValueError("must lie between 0 and 600 seconds")
    return round(seconds * 1000)


def _hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if any("/" in host or ":" in host or "*" in host for host in hosts):
        raise ValueError("must be names without scheme, port or wildcard, separated by commas")
    return hosts


def _trace_url(text: str) -> str:
    if not text.startswith(("http://", "https://")) or "{trace_id}" not in text:
        raise ValueError("must be an http or https address that contains {trace_id}")
    return text


SERVICE_SETTINGS: dict[str, Setting] = {
    "TIDEQ_HOST": Setting("", "host", str),
    "TIDEQ_PORT": Setting("", "port", _port),
    "TIDEQ_AUTH": Setting("", "auth", _one_of(get_args(Auth))),
    "TIDEQ_DURABILITY_TIMEOUT_SECONDS": Setting("", "durability_timeout_ms", _short_time),
    "TIDEQ_SLOW_CLIENT_SECONDS": Setting("", "slow_client_ms", _slow_client_time),
    "TIDEQ_ALLOWED_HOSTS": Setting("", "allowed_hosts", _hosts),
    "TIDEQ_HOT_PATH": Setting("", "hot_path", _one_of(get_args(Switch))),
    "TIDEQ_HTTP_PROTOCOL": Setting("", "http_protocol", _one_of(get_args(HttpProtocol))),
    "TIDEQ_TRACE_URL_TEMPLATE": Setting("", "trace_url_template", _trace_url),
    "REDIS_URL": Setting("", "redis_url", str),
}


CLIENT_SETTINGS = ("TIDEQ_URL", "TIDEQ_API_KEY", "TIDEQ_CONTEXT")
"""Clients' settings, accepted because they are often in the same environment."""


def read_service_settings(environ: Mapping[str, str]) -> ServiceSettings:
    settings = ServiceSettings(
        **_chosen(environ, SERVICE_SETTINGS),
        history=HistorySettings(**_chosen(environ, HISTORY_SETTINGS)),
        queue=read_settings(environ, other_settings=(*SERVICE_SETTINGS, *HISTORY_SETTINGS, *CLIENT_SETTINGS)),
    )
    if settings.auth == "off" and not settings.is_loopback:
        raise SettingsError(
            f"TIDEQ_AUTH=off is for loopback only, and TIDEQ_HOST is {settings.host}; use TIDEQ_AUTH=keys"
        )
    return settings


def _chosen(environ: Mapping[str, str], settings: Mapping[str, Setting]) -> dict[str, Any]:
    return {
        setting.field: parse_setting(name, setting, environ[name])
        for name, setting in settings.items()
        if environ.get(name)
    }
