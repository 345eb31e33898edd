"""The format number of the store's data, and the formats that this version can read.

`meta` holds the number as `format`; a missing number means 1. A process reads every format up to its newest, and writes
the format of the store, so that earlier versions can run beside it. `tideq migrate finish` raises the number once every
process runs this version; nothing lowers it. History keeps the number too, in case the store is lost.
"""

from collections.abc import Iterable

from tideq.queue_core.errors import StoreTooNew

NEWEST_FORMAT = 2
READABLE_FORMATS = range(1, NEWEST_FORMAT + 1)


def check_formats(found: Iterable[int]) -> None:
    """Raises StoreTooNew if this version cannot read one of the formats."""
    for number in found:
        if number not in READABLE_FORMATS:
            raise StoreTooNew(str(number))
