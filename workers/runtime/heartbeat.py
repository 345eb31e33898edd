"""Heartbeats of a worker process: one request for each consumer, over a connection of its own."""

from collections.abc import Callable

import structlog

from tideq.client.heartbeat_thread import Heartbeat, HeartbeatThread
from tideq.client.http.endpoint import endpoint_of
from tideq.client.http.exchange import HttpRequest, Timeouts
from tideq.client.http.over_urllib3 import Http
from tideq.workers.runtime.service_api import (
    UNKNOWN_WORKER,
    ServiceReply,
    Unreachable,
    decode_reply,
    encode,
    headers,
    problem_in,
)

TIMEOUTS = Timeouts(connect=10.0, read=10.0, write=10.0)
MAX_CONNECTIONS = 100

log = structlog.get_logger("tideq.worker")


def heartbeat_thread(
    url: str,
    api_key: str | None,
    beats: Callable[[], list[Heartbeat]],
    interval_seconds: Callable[[], float],
    on_reply: Callable[[str, ServiceReply], None],
    on_unknown: Callable[[str], None],
) -> HeartbeatThread:
    http = Http(endpoint_of(url, headers(api_key)), TIMEOUTS, verify=True, max_connections=MAX_CONNECTIONS)

    def send(beat: Heartbeat) -> None:
        """Over a new connection: a kept one may have ended between two heartbeats."""
        body = encode({"current_load": beat.current_load, "status": beat.status, "health": beat.health})
        path = f"/internal/workers/{beat.worker_id}/heartbeat"
        response = http.request(HttpRequest(method="POST", path=path, body=body, is_repeatable=False))
        if response.is_success:
            on_reply(beat.worker_id, decode_reply(response.body))
        elif problem_in(response.body).code == UNKNOWN_WORKER:
            on_unknown(beat.worker_id)
        else:
            raise Unreachable(f"{response.status} {problem_in(response.body).code}")

    return HeartbeatThread(beats, send, interval_seconds, _log_failure)


def _log_failure(worker_id: str, error: Exception, in_a_row: int) -> None:
    text = f"{type(error).__name__}: {error}"
    log.warning("heartbeat failed", worker_id=worker_id, error=text, in_a_row=in_a_row)
