"""Checks this machine: Python, settings, stored contexts, the data folder, the port, the telemetry endpoints."""

import importlib.metadata
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tideq.api.settings import ServiceSettings, read_service_settings
from tideq.cli.checks.finding import Finding, fail, ok, warn
from tideq.cli.contexts import contexts_file, is_open_to_others
from tideq.queue_core.settings import SettingsError

OLDEST_PYTHON = (3, 11)
CONNECT_SECONDS = 2.0
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PORTS = {"http": 4318, "https": 443}


def check_machine(environ: Mapping[str, str], data_dir: Path) -> Iterator[Finding]:
    yield check_python(sys.version_info[:3])
    yield from check_settings(environ)
    yield from check_contexts(contexts_file(environ))
    yield check_folder(data_dir)
    yield from check_telemetry(environ)


def check_python(version: tuple[int, int, int]) -> Finding:
    text = ".".join(map(str, version))
    if version[:2] < OLDEST_PYTHON:
        return fail("python", f"{text} is too old", "install Python 3.11 or later")
    return ok("python", f"{text}, tideq {importlib.metadata.version('tideq')}")


def settings_in(environ: Mapping[str, str]) -> ServiceSettings | None:
    """None where the settings are wrong, which `check_settings` reports."""
    try:
        return read_service_settings(environ)
    except SettingsError:
        return None


def check_settings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Reports every wrong setting; starting a process reports only the first one."""
    try:
        read_service_settings(environ)
    except SettingsError as error:
        alone = [problem for name in environ if (problem := _problem({name: environ[name]}))]
        for problem in dict.fromkeys([*alone, str(error)]):
            yield fail("settings", problem, "correct or unset it; queue_core/settings.py lists all settings")
        return
    count = sum(name.startswith("TIDEQ_") for name in environ)
    yield ok("settings", f"{count} TIDEQ_… variables, all valid" if count else "all defaults")


def _problem(environ: Mapping[str, str]) -> str | None:
    try:
        read_service_settings(environ)
    except SettingsError as error:
        return str(error)
    return None


def check_contexts(path: Path) -> Iterator[Finding]:
    if is_open_to_others(path):
        yield warn("contexts", f"other users may read the keys in {path}", f"run `chmod 600 {path}`")


def check_folder(data_dir: Path) -> Finding:
    """The data folder of `tideq up`: it must be writable, or its nearest existing parent must be."""
    nearest = next(folder for folder in (data_dir, *data_dir.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        return fail("data folder", f"{nearest} is not a folder", "choose another folder with --data-dir")
    try:
        # Writes a file, because permissions do not show a read-only or full file system.
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        return fail("data folder", f"{nearest}: {error.strerror}", "choose another folder with --data-dir")
    return ok("data folder", f"{data_dir} {'is writable' if nearest == data_dir else 'can be created'}")


def check_port(host: str, port: int, *, is_ours: bool) -> Finding:
    """The port on which `tideq up` and `tideq serve` listen."""
    if is_ours:
        return ok("port", f"TideQ listens on {host}:{port}")
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, port))
        except OSError as error:
            return warn("port", f"{host}:{port}: {error.strerror}", "stop the process that uses it, or set TIDEQ_PORT")
    return ok("port", f"{host}:{port} is free")


def check_telemetry(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Traces sent to an endpoint without a collector are lost without an error."""
    for name in ENDPOINTS:
        if (url := environ.get(name)) and environ.get("OTEL_SDK_DISABLED", "").lower() != "true":
            parts = urlsplit(url if "//" in url else f"//{url}")
            address = (parts.hostname or "", parts.port or PORTS.get(parts.scheme, 4317))
            try:
                socket.create_connection(address, CONNECT_SECONDS).close()
                yield ok("telemetry", f"{url} accepts connections")
            except OSError as error:
                why = error.strerror or str(error)
                yield warn("telemetry", f"{name}={url}: {why}", "start the collector, or unset it")
