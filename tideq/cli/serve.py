"""`tideq serve`: the service alone, against a store that is there already."""

import sys

from tideq.cli.running import environ_with, run_service, say, settings_from


def serve(*, host: str | None = None, port: int | None = None) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Parameters
    ----------
    host
        Where to listen; also TIDEQ_HOST. Anything but loopback needs access keys.
    port
        Where to listen; also TIDEQ_PORT.
    """
    settings = settings_from(environ_with(TIDEQ_HOST=host, TIDEQ_PORT=port))
    if not settings.redis_url:
        sys.exit("error: set REDIS_URL, for example REDIS_URL=redis://127.0.0.1:6379; `tideq up` brings its own store")
    run_service(settings, lambda address: say(f"TideQ answers at {address}"))
