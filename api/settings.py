"""What the service must know besides the queue's own settings: where to listen, whom to trust, where the store is."""

import ipaddress
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tideq.queue_core.settings import QueueSettings, Setting, SettingsError, parse_setting, read_settings

Auth = Literal["keys", "off"]


class ServiceSettings(msgspec.Struct, frozen=True):
    host: str = "127.0.0.1"
    port: int = 8080
    auth: Auth = "keys"
    redis_url: str = ""
    max_body_bytes: int = 16 * 1024 * 1024
    queue: QueueSettings = QueueSettings()

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


def _auth(text: str) -> str:
    if text not in ("keys", "off"):
        raise ValueError("must be 'keys' or 'off'")
    return text


SERVICE_SETTINGS: dict[str, Setting] = {
    "TIDEQ_HOST": Setting("", "host", str),
    "TIDEQ_PORT": Setting("", "port", _port),
    "TIDEQ_AUTH": Setting("", "auth", _auth),
    "REDIS_URL": Setting("", "redis_url", str),
}


def read_service_settings(environ: Mapping[str, str]) -> ServiceSettings:
    chosen: dict[str, Any] = {
        setting.field: parse_setting(name, setting, environ[name])
        for name, setting in SERVICE_SETTINGS.items()
        if environ.get(name)
    }
    settings = ServiceSettings(**chosen, queue=read_settings(environ, known_elsewhere=SERVICE_SETTINGS))
    if settings.auth == "off" and not settings.is_loopback:
        raise SettingsError(f"TIDEQ_AUTH=off is for loopback only, and TIDEQ_HOST is {settings.host}")
    return settings
