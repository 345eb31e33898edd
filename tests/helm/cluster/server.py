"""A Kubernetes API server's stand-in, enough for `helm install --wait` and all that follows.

It keeps objects, answers watches and lets what stands for controllers settle them. It does not check what objects say:
kubernetes-validate does.
"""

import json
import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from tests.helm.cluster.controllers import Controllers
from tests.helm.cluster.discovery import described
from tests.helm.cluster.kinds import KINDS, Kind
from tests.helm.cluster.objects import Change, Json, Objects, Ref
from tests.helm.cluster.protobuf import MAGIC, read_secret

LOOK_SECONDS = 0.2
WATCH_SECONDS = 60.0


class Cluster:
    def __init__(self, url: str, objects: Objects) -> None:
        self.url = url
        self.objects = objects

    def create(self, kind: str, namespace: str, name: str, **fields: Any) -> None:
        found = next(each for each in KINDS.values() if each.name == kind)
        self.objects.put(
            Ref(found, namespace, name),
            {"apiVersion": found.api_version, "kind": kind, "metadata": {"labels": {}}, **fields},
        )

    def names(self, kind: str) -> set[str]:
        return {ref.name for ref, _ in self.objects.all(kind)}

    def find(self, kind: str, ends_with: str = "") -> Json:
        (found,) = [found for ref, found in self.objects.all(kind) if ref.name.endswith(ends_with)]
        return found


@contextmanager
def cluster(namespace: str) -> Generator[Cluster]:
    objects = Objects(Controllers().settle)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(objects))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    running = Cluster(f"http://127.0.0.1:{server.server_address[1]}", objects)
    for each in ("default", namespace):
        running.create("Namespace", "", each)
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Asked:
    """A request's path taken apart: of which kind, where, and for whom."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self.path = parts.path.strip("/")
        self.options = dict(parse_qsl(parts.query))
        words = self.path.split("/")
        depth = 2 if words[0] == "api" else 3
        root, rest = words[:depth], words[depth:]
        self.namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            self.namespace, rest = rest[1], rest[2:]
        self.kind: Kind | None = KINDS.get("/".join([*root, *rest[:1]])) if rest else None
        self.name = rest[1] if len(rest) > 1 else ""
        self.part = rest[2] if len(rest) > 2 else ""

    @property
    def is_watch(self) -> bool:
        return self.options.get("watch") in ("true", "1")

    def wants(self, ref: Ref, found: Json) -> bool:
        if ref.kind != self.kind or (self.namespace and ref.namespace != self.namespace):
            return False
        fields = _selected(self.options.get("fieldSelector", ""))
        labels = _selected(self.options.get("labelSelector", ""))
        has = found["metadata"].get("labels", {})
        return fields.get("metadata.name", ref.name) == ref.name and all(
            has.get(name) == value for name, value in labels.items()
        )


def _selected(text: str) -> dict[str, str]:
    pairs = (part.replace("==", "=").partition("=") for part in text.split(",") if "=" in part and "!" not in part)
    return {name: value for name, _, value in pairs}


def _merge(into: Json, patch: Json) -> Json:
    """RFC 7386, which is also as much of server-side apply as one manager needs."""
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)  # pyright: ignore[reportUnknownArgumentType]
        else:
            into[name] = value
    return into


def _read(body: bytes) -> Json:
    return read_secret(body) if body.startswith(MAGIC) else yaml.safe_load(body)


def _handler(objects: Objects) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = Asked(self.path)
            document = described(asked.path)
            if document is not None:
                self._answer(200, document)
            elif asked.kind is None:
                self._refuse(404, "NotFound", asked.path)
            elif asked.is_watch:
                self._watch(asked)
            elif not asked.name:
                self._list(asked, asked.kind)
            elif asked.part == "log":
                self._answer(200, {})
            else:
                self._found(objects.get(Ref(asked.kind, asked.namespace, asked.name)), asked)

        def do_POST(self) -> None:
            asked, new = Asked(self.path), _read(self._body())
            assert asked.kind is not None, asked.path
            ref = Ref(asked.kind, asked.namespace, new["metadata"]["name"])
            if objects.get(ref) is not None:
                self._refuse(409, "AlreadyExists", f'{asked.kind.plural} "{ref.name}" already exists')
            else:
                self._answer(201, objects.put(ref, new))

        def do_PUT(self) -> None:
            asked = Asked(self.path)
            assert asked.kind is not None, asked.path
            self._answer(200, objects.put(Ref(asked.kind, asked.namespace, asked.name), _read(self._body())))

        def do_PATCH(self) -> None:
            asked, patch = Asked(self.path), yaml.safe_load(self._body())
            assert asked.kind is not None, asked.path
            ref = Ref(asked.kind, asked.namespace, asked.name)
            known = objects.get(ref)
            if known is None and "apply-patch" not in self.headers.get("Content-Type", ""):
                self._refuse(404, "NotFound", f'{asked.kind.plural} "{asked.name}" not found')
                return
            made = _merge(known or {}, patch)
            is_trial = "dryRun" in asked.options
            self._answer(200 if known else 201, made if is_trial else objects.put(ref, made))

        def do_DELETE(self) -> None:
            asked = Asked(self.path)
            assert asked.kind is not None, asked.path
            self._body()
            gone = objects.remove(Ref(asked.kind, asked.namespace, asked.name))
            self._found(gone, asked)

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def _found(self, found: Json | None, asked: Asked) -> None:
            if found is None:
                self._refuse(404, "NotFound", f'"{asked.name}" not found')
            else:
                self._answer(200, found)

        def _list(self, asked: Asked, kind: Kind) -> None:
            items = [found for ref, found in objects.all() if asked.wants(ref, found)]
            head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version}
            self._answer(200, {**head, "metadata": {"resourceVersion": str(objects.version)}, "items": items})

        def _watch(self, asked: Asked) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            changes, present, version = objects.watch()
            try:
                if asked.options.get("sendInitialEvents") == "true":
                    for ref, found in present:
                        if asked.wants(ref, found):
                            self._tell("ADDED", found)
                    self._tell("BOOKMARK", _bookmark(asked.kind, version))
                for change in _until_late(changes, float(asked.options.get("timeoutSeconds", WATCH_SECONDS))):
                    if asked.wants(change.ref, change.object):
                        self._tell(change.type, change.object)
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True
            finally:
                objects.unwatch(changes)

        def _tell(self, how: str, found: Json) -> None:
            line = json.dumps({"type": how, "object": found}).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

        def _refuse(self, code: int, reason: str, message: str) -> None:
            told = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
            self._answer(code, {**told, "reason": reason, "message": message, "code": code})

        def _answer(self, code: int, document: Json) -> None:
            body = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Hundreds of requests, none of them news."""

    return Handler


def _bookmark(kind: Kind | None, version: int) -> Json:
    """Tells that all there was has been sent."""
    assert kind is not None
    meta = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": meta}


def _until_late(changes: "queue.SimpleQueue[Change]", seconds: float) -> Iterator[Change]:
    silent = 0.0
    while silent < seconds:
        try:
            yield changes.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            silent += LOOK_SECONDS
