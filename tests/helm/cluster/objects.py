"""What the stand-in keeps: objects, and who watches them. Every change is told to watchers in order."""

import copy
import threading
import uuid
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, NamedTuple

from tests.helm.cluster.kinds import Kind

Json = dict[str, Any]
Settle = Callable[["Objects"], None]
CREATED_AT = "2026-01-01T00:00:00Z"


class Ref(NamedTuple):
    kind: Kind
    namespace: str
    name: str


class Change(NamedTuple):
    type: str
    ref: Ref
    object: Json


class Objects:
    def __init__(self, settle: Settle) -> None:
        self.lock = threading.RLock()
        self.version = 100
        self._kept: dict[Ref, Json] = {}
        self._watchers: list[SimpleQueue[Change]] = []
        self._settle = settle

    def get(self, ref: Ref) -> Json | None:
        with self.lock:
            return copy.deepcopy(self._kept.get(ref))

    def all(self, kind_name: str = "") -> list[tuple[Ref, Json]]:
        """Copies, in the order of their making."""
        with self.lock:
            return [
                (ref, copy.deepcopy(found)) for ref, found in self._kept.items() if kind_name in ("", ref.kind.name)
            ]

    def put(self, ref: Ref, new: Json) -> Json:
        """What is put may change what others are: whoever stands for controllers looks at everything again."""
        with self.lock:
            known = self._kept.get(ref)
            meta: Json = new.setdefault("metadata", {})
            meta.update(name=ref.name, **({"namespace": ref.namespace} if ref.namespace else {}))
            before: Json = known["metadata"] if known else {}
            meta["uid"] = before.get("uid") or str(uuid.uuid4())
            meta["creationTimestamp"] = CREATED_AT
            meta["generation"] = before.get("generation", 0) + 1
            self._keep(ref, new, "MODIFIED" if known else "ADDED")
            self._settle(self)
            return copy.deepcopy(self._kept[ref])

    def set_status(self, ref: Ref, status: Json) -> None:
        with self.lock:
            known = self._kept[ref]
            if known.get("status") != status:
                self._keep(ref, {**known, "status": status}, "MODIFIED")

    def remove(self, ref: Ref) -> Json | None:
        with self.lock:
            gone = self._kept.pop(ref, None)
            if gone is not None:
                self.version += 1
                self._tell(Change("DELETED", ref, gone))
                self._settle(self)
            return gone

    def watch(self) -> tuple[SimpleQueue[Change], list[tuple[Ref, Json]], int]:
        """All changes from now on, and everything as it is now."""
        with self.lock:
            changes: SimpleQueue[Change] = SimpleQueue()
            self._watchers.append(changes)
            return changes, self.all(), self.version

    def unwatch(self, changes: "SimpleQueue[Change]") -> None:
        with self.lock:
            self._watchers.remove(changes)

    def __iter__(self) -> Iterator[tuple[Ref, Json]]:
        return iter(self.all())

    def _keep(self, ref: Ref, new: Json, how: str) -> None:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        self._kept[ref] = new
        self._tell(Change(how, ref, copy.deepcopy(new)))

    def _tell(self, change: Change) -> None:
        for watcher in self._watchers:
            watcher.put(change)
