"""A collector that decodes metrics with OpenTelemetry's own generated classes."""

import gzip
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

Point = tuple[dict[str, str], Any]


class MetricsSink:
    def __init__(self) -> None:
        self.url = ""
        self.paths: list[str] = []
        self.resource: dict[str, str] = {}
        self.metrics: dict[str, Any] = {}
        """The latest of each name."""

    def take(self, path: str, body: bytes) -> None:
        request = ExportMetricsServiceRequest.FromString(body)
        self.paths.append(path)
        for told in request.resource_metrics:
            self.resource = _texts(told.resource.attributes)
            self.metrics |= {metric.name: metric for scope in told.scope_metrics for metric in scope.metrics}

    def points(self, name: str) -> list[Point]:
        metric = self.metrics[name]
        return [(_texts(point.attributes), point) for point in getattr(metric, metric.WhichOneof("data")).data_points]

    def number(self, name: str, **labels: str) -> float:
        (found,) = [point for told, point in self.points(name) if labels.items() <= told.items()]
        return getattr(found, found.WhichOneof("value"))


def _texts(attributes: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in attributes}


@contextmanager
def collecting_metrics() -> Generator[MetricsSink]:
    sink = MetricsSink()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            sink.take(self.path, gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Tests are quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sink.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield sink
    finally:
        server.shutdown()
        server.server_close()
