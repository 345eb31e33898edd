"""This machine: Python, settings, remembered contexts, the data folder, the port, and who takes the traces."""

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
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
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
    """None where they are wrong, which is told apart."""
    try:
        return read_service_settings(environ)
    except SettingsError:
        return None


def check_settings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Every wrong one, not only the first that a start would stumble over."""
    try:
        read_service_settings(environ)
    except SettingsError as error:
        alone = [problem for name in environ if (problem := _problem({name: environ[name]}))]
        for problem in dict.fromkeys([*alone, str(error)]):
            yield fail("settings", problem, "correct or unset it; queue_core/settings.py lists them all")
        return
    count = sum(name.startswith("TIDEQ_") for name in environ)
    yield ok("settings", f"{count} of TIDEQ_…, all known" if count else "all defaults")


def _problem(environ: Mapping[str, str]) -> str | None:
    try:
        read_service_settings(environ)
    except SettingsError as error:
        return str(error)
    return None


def check_contexts(path: Path) -> Iterator[Finding]:
    if is_open_to_others(path):
        yield warn("contexts", f"others may read the keys in {path}", f"chmod 600 {path}")


def check_folder(data_dir: Path) -> Finding:
    """Where `tideq up` keeps its data: writable, or to be made in a folder that is."""
    nearest = next(folder for folder in (data_dir, *data_dir.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        return fail("data folder", f"{nearest} is no folder", "choose another one with --data-dir")
    try:
        # Trying is the only way to know: rights are not all that keeps a folder from being written to.
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        return fail("data folder", f"{nearest}: {error.strerror}", "choose another one with --data-dir")
    return ok("data folder", f"{data_dir} {'is writable' if nearest == data_dir else 'can be made'}")


def check_port(host: str, port: int, *, is_ours: bool) -> Finding:
    """Where `tideq up` and `tideq serve` would listen."""
    if is_ours:
        return ok("port", f"TideQ has {host}:{port}")
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, port))
        except OSError as error:
            return warn("port", f"{host}:{port}: {error.strerror}", "stop what has it, or set TIDEQ_PORT")
    return ok("port", f"{host}:{port} is free")


def check_telemetry(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Traces and metrics that nobody takes are lost without a word."""
    for name in ENDPOINTS:
        if (url := environ.get(name)) and environ.get("OTEL_SDK_DISABLED", "").lower() != "true":
            parts = urlsplit(url if "//" in url else f"//{url}")
            address = (parts.hostname or "", parts.port or PORTS.get(parts.scheme, 4317))
            try:
                socket.create_connection(address, CONNECT_SECONDS).close()
                yield ok("telemetry", f"{url} takes connections")
            except OSError as error:
                why = error.strerror or str(error)
                yield warn("telemetry", f"{name}={url}: {why}", "start the collector, or unset it")
