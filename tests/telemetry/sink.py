"""A collector that decodes what it is sent with OpenTelemetry's own generated classes, and one that never answers."""

import gzip
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

WAIT_SECONDS = 90.0


@dataclass(frozen=True)
class Seen:
    """A span as it arrived."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    is_error: bool
    events: list[tuple[str, dict[str, Any]]]
    service: str
    scope: str
    host: str
    links: list[tuple[str, str]]
    """Of the spans that it has to do with, trace and span."""
    tracestate: str = ""

    @property
    def milliseconds(self) -> int:
        """As told by a clock of milliseconds."""
        return self.ended_ns // 1_000_000 - self.began_ns // 1_000_000


@dataclass
class Sink:
    url: str = ""
    spans: list[Seen] = field(default_factory=list[Seen])
    request_count: int = 0
    hangs: bool = False
    _news: threading.Condition = field(default_factory=threading.Condition)

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._news:
            self.spans += decoded(request)
            self._news.notify_all()

    def wait(self, is_enough: Callable[[list[Seen]], bool]) -> list[Seen]:
        """Everything seen, once it is enough."""
        deadline = time.monotonic() + WAIT_SECONDS
        with self._news:
            while not is_enough(self.spans):
                left = deadline - time.monotonic()
                assert left > 0, f"only {[(span.name, span.trace_id) for span in self.spans]}"
                self._news.wait(left)
            return list(self.spans)

    def of_trace(self, trace_id: str, names: int) -> list[Seen]:
        """The spans of one trace, once there are so many."""
        found = self.wait(lambda spans: sum(span.trace_id == trace_id for span in spans) >= names)
        return [span for span in found if span.trace_id == trace_id]


def decoded(request: Any) -> Iterator[Seen]:
    for resource_spans in request.resource_spans:
        resource = _values(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield Seen(
                    name=span.name,
                    kind=span.kind,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    began_ns=span.start_time_unix_nano,
                    ended_ns=span.end_time_unix_nano,
                    attributes=_values(span.attributes),
                    is_error=span.status.code == 2,
                    events=[(event.name, _values(event.attributes)) for event in span.events],
                    service=resource.get("service.name", ""),
                    scope=scope_spans.scope.name,
                    host=resource.get("host.name", ""),
                    links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                    tracestate=span.trace_state,
                )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def collecting() -> Generator[Sink]:
    sink, let_go = Sink(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            is_trace = self.path == "/v1/traces"
            sink.request_count += is_trace
            if sink.hangs:
                let_go.wait()
                return
            if is_trace:
                sink.take(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Tests say enough."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        sink.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield sink
        finally:
            let_go.set()
            server.shutdown()
