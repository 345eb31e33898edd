"""The format number of the store's data, and the formats that this version can read.

`meta` holds the number as `format`. A process reads every format up to its newest, and writes the format of the store,
so that the version before can run beside it. `tideq migrate finish` raises the number once every process runs this
version; nothing lowers it. History keeps the number too, in case the store is lost.
"""

from collections.abc import Iterable

from tideq.queue_core.errors import StoreFormatUnknown

FIRST_FORMAT, NEWEST_FORMAT = 3, 3
"""A new store is written in the first, which every version that may run beside this one reads."""
READABLE_FORMATS = range(FIRST_FORMAT, NEWEST_FORMAT + 1)


NEWER = "run the version that raised the format, or a later one"
OLDER = "run the version that wrote it, or begin with an empty store and an empty database or data folder"


def check_formats(found: Iterable[int]) -> None:
    """Raises StoreFormatUnknown if this version cannot read one of the formats."""
    for number in found:
        if number not in READABLE_FORMATS:
            raise unknown_format(str(number))


def unknown_format(found: str) -> StoreFormatUnknown:
    is_older = found.isdecimal() and int(found) < FIRST_FORMAT
    return StoreFormatUnknown(found, OLDER if is_older else NEWER)
