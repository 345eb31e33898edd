"""The format of what the store keeps: which number processes write, and which they can read.

`meta` holds the number as `format`; where it is absent, it is 1. A process reads every format up to the newest that it
knows, and writes the one that the store says, so that versions which do not know a later one can work beside it.
`tideq migrate finish` raises it once every process is of this version; nothing lowers it. History keeps the number too,
for the day the store is lost.
"""

from collections.abc import Iterable

from tideq.queue_core.errors import StoreTooNew

NEWEST_FORMAT = 2
READABLE_FORMATS = range(1, NEWEST_FORMAT + 1)


def check_formats(found: Iterable[int]) -> None:
    """Raises StoreTooNew where one of them is later than this version knows."""
    for number in found:
        if number not in READABLE_FORMATS:
            raise StoreTooNew(str(number))
