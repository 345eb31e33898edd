"""Whether a kept connection has something to read: its end, or what nobody asked for."""

import select


def is_readable(file: int) -> bool:
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([file], [], [], 0)[0])
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(0))
