"""`tideq doctor`: checks the machine, the service and its stores, and prints what to do about each problem."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from tideq.api.settings import ServiceSettings
from tideq.cli.checks.finding import Finding, fail
from tideq.cli.checks.history import check_history
from tideq.cli.checks.machine import check_machine, check_port, settings_in
from tideq.cli.checks.service import answers_at, check_service
from tideq.cli.checks.store import check_store
from tideq.cli.output import has_colours, print_line, printable, show
from tideq.cli.session import FAILED, LOCAL, OK, Service
from tideq.client import NO_RETRIES, Client, Timeouts

TIMEOUTS = Timeouts(connect=2, read=5)
COLOURS = {"ok": "32", "warn": "33", "fail": "31"}
COLUMNS = {"check": "check", "status": "status", "found": "found", "advice": "advice"}
WIDTH = 22


def doctor(*, data_dir: Path = Path("data"), service: Service = LOCAL) -> int:
    """Check this machine, the service and, where the environment has their URLs, its store, history and telemetry.

    Each check reports ok, warn or fail, and what to do. The exit code is 1 if any check failed.

    Parameters
    ----------
    data_dir
        The data folder of `tideq up`.
    """
    if service.no_color:
        os.environ["NO_COLOR"] = "1"
    found: list[Finding] = []
    for finding in findings(data_dir, service, os.environ):
        found.append(finding)
        if service.output == "table":
            _print_finding(finding)
    if service.output != "table":
        show(found, COLUMNS, service.output)
    return FAILED if any(finding.status == "fail" for finding in found) else OK


def findings(data_dir: Path, service: Service, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yields each finding as soon as its check has run."""
    settings = settings_in(environ)
    yield from check_machine(environ, data_dir)
    yield from _check_service(service, settings or ServiceSettings(), environ)
    if settings is not None:
        yield from asyncio.run(_all(_check_stores(settings)))


def _check_service(service: Service, settings: ServiceSettings, environ: Mapping[str, str]) -> Iterator[Finding]:
    try:
        target = service.target(environ)
        client = Client(target.url, target.api_key, retries=NO_RETRIES, timeouts=TIMEOUTS)
    except ValueError as error:
        yield fail("service", str(error), "correct --url, TIDEQ_URL or the context")
        return
    with client:
        found = list(check_service(client, is_expected=target.source != "default" or not settings.redis_url))
        yield from found
        has_port = found[0].status == "ok" and answers_at(client, settings.host, settings.port)
    if target.source == "default" or settings.redis_url:
        yield check_port(settings.host, settings.port, is_ours=has_port)


async def _check_stores(settings: ServiceSettings) -> AsyncIterator[Finding]:
    if settings.redis_url:
        async for finding in check_store(settings.redis_url, settings.queue):
            yield finding
    if settings.history.database_url:
        async for finding in check_history(settings):
            yield finding


async def _all(findings: AsyncIterator[Finding]) -> list[Finding]:
    return [finding async for finding in findings]


def _print_finding(finding: Finding) -> None:
    mark = f"{finding.status:<4}"
    if has_colours(sys.stdout):
        mark = f"\x1b[{COLOURS[finding.status]}m{mark}\x1b[0m"
    print_line(f"{mark}  {finding.check:<{WIDTH}} {printable(finding.found)}")
    if finding.advice:
        print_line(f"{'':<{WIDTH + 6}} → {printable(finding.advice)}")
