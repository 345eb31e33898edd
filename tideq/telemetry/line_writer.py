"""Writes lines in a thread of its own, so that a pipe whose reader has stopped does not stop the service."""

import contextlib
import queue
import threading
from typing import TextIO

MAX_WAITING = 1_000
"""Texts of up to 250 lines each; further ones are dropped and counted."""
CLOSE_SECONDS = 1.0


class LineWriter:
    """A context manager; leaving it writes the waiting texts for at most CLOSE_SECONDS."""

    def __init__(self, stream: TextIO) -> None:
        self.dropped_count = 0
        """Counts texts, not lines."""
        self._stream = stream
        self._waiting: queue.Queue[str | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._work, name="tideq-lines", daemon=True)

    def __enter__(self) -> "LineWriter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=CLOSE_SECONDS)
            self._thread.join(CLOSE_SECONDS)

    def write(self, text: str) -> None:
        try:
            self._waiting.put_nowait(text)
        except queue.Full:
            self.dropped_count += 1

    def _work(self) -> None:
        """Writes whole lines in one call, so that lines of other writers cannot split them."""
        while (text := self._waiting.get()) is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(text)
                self._stream.flush()
