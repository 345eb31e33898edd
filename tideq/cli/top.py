"""`tideq top`: shows depth, throughput, task types and workers of a service, live."""

import contextlib
import signal
import sys
import time
from collections.abc import Generator
from typing import Annotated

from rich.console import Console
from rich.live import Live

from tideq.cli.output import has_colours, show_one
from tideq.cli.session import LOCAL, OK, USAGE, Service, Switch, open_client, stop
from tideq.cli.top_view.frame import frame, now, plain_frame
from tideq.cli.top_view.readings import Reader, ReadFailure, Snapshot, read
from tideq.cli.top_view.terminal import Ended, KeyReader, open_terminal
from tideq.cli.top_view.view import Action, View
from tideq.client import Client, TideqError

MIN_INTERVAL_SECONDS = 0.1
PLAIN_WIDTH = 200
HUNG_UP = 128 + signal.SIGHUP


def top(*, once: Annotated[bool, Switch] = False, interval: float = 1.0, service: Service = LOCAL) -> int:
    """Depth, throughput, waits, types and workers, updated live. An unreachable service is polled until it is back.

    Keys: q quits, p pauses or resumes the queue, arrows sort and scroll, r reverses the order, tab changes tables.

    Parameters
    ----------
    once
        Print one frame and exit; the default where the output is not a terminal.
    interval
        Seconds between updates.
    """
    if not MIN_INTERVAL_SECONDS <= interval <= 3_600:
        stop(f"--interval {interval:g} is not between {MIN_INTERVAL_SECONDS} and 3600", USAGE)
    with open_client(service) as client:
        if service.output != "table":
            return _print(client, service, interval, once=once)
        if once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            return _print_once(client)
        return _watch(client, interval)


def _print(client: Client, service: Service, interval: float, *, once: bool) -> int:
    """Prints one JSON document, or with jsonl a line for each update."""
    show_one(read(client), service.output)
    while service.output == "jsonl" and not once:
        time.sleep(interval)
        show_one(read(client), service.output)
    return OK


def _print_once(client: Client) -> int:
    view = View()
    view.take(read(client))
    is_terminal = sys.stdout.isatty()
    console = Console(no_color=not has_colours(sys.stdout), width=None if is_terminal else PLAIN_WIDTH, highlight=False)
    console.print(plain_frame(view, client.transport.connection.url, now()))
    return OK


def _watch(client: Client, interval: float) -> int:
    view = View()
    try:
        with open_terminal() as keys, _screen() as screen:
            _live(client, view, keys, screen, interval)
    except Ended as end:
        return end.code
    except OSError:
        # The terminal was closed, so there is no screen to restore.
        return HUNG_UP
    return OK


def _live(client: Client, view: View, keys: KeyReader, screen: Live, interval: float) -> None:
    """Runs until the user quits. The reader's thread delivers the readings; only this thread draws."""
    readings: list[Snapshot | ReadFailure] = []

    def deliver(reading: Snapshot | ReadFailure) -> None:
        readings.append(reading)
        keys.wake()

    reader = Reader(client, interval, deliver)
    reader.start()
    try:
        while True:
            while readings:
                _take(readings.pop(0), view)
            _draw(view, client, screen)
            for key in keys.wait(1.0):
                if (action := view.handle_key(key)) == "quit":
                    return
                _perform(action, client, view, reader)
    finally:
        reader.stop()


def _take(reading: Snapshot | ReadFailure, view: View) -> None:
    """Raises the error of a key that the service refuses from the start."""
    if isinstance(reading, ReadFailure) and reading.is_final and view.reading is None:
        raise reading.error
    view.take(reading)


def _perform(action: Action | None, client: Client, view: View, reader: Reader) -> None:
    try:
        if action == "pause":
            client.queue.pause(reason="paused from tideq top")
        elif action == "resume":
            client.queue.resume()
    except TideqError as error:
        view.message = str(error)
    if action is not None:
        reader.read_now()


def _draw(view: View, client: Client, screen: Live) -> None:
    width, height = screen.console.size
    screen.update(frame(view, client.transport.connection.url, width, height, now()), refresh=True)


@contextlib.contextmanager
def _screen() -> Generator[Live]:
    """The terminal's alternate screen; leaving it restores the previous contents."""
    console = Console(no_color=not has_colours(sys.stdout), highlight=False)
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        yield live
