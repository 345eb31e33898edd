"""How long each part of an exchange may take."""

import msgspec

from tideq.client.options import StrictStruct


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, metaclass=StrictStruct):
    """Seconds. `read` is for one silence in an answer; calls that wait on purpose add their own time to it."""

    connect: float = 5.0
    read: float = 20.0
    write: float = 20.0
    pool: float = 60.0

    def for_call(self, waits_seconds: float) -> "Timeouts":
        return msgspec.structs.replace(self, read=self.read + waits_seconds) if waits_seconds else self
