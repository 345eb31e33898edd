"""One probe: a plain HTTP request for /health to an address that was checked, with every length bounded.

By hand, because a client library follows redirects, reads proxies from the environment and whole answers into memory.
All that is told is whether the worker is well: neither status nor body nor time, which would make a port scanner of it.
"""

import asyncio
import contextlib

from tideq.workers.monitor.addresses import Address

CONNECT_SECONDS = 1.0
TOTAL_SECONDS = 2.0
MAX_BYTES = 1_024
REQUEST = "GET /health HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tideq-monitor\r\nConnection: close\r\n\r\n"


async def is_well(address: Address, port: int) -> bool:
    """Whether /health there answers 200."""
    try:
        async with asyncio.timeout(TOTAL_SECONDS):
            return await _ask(address, port)
    except (OSError, TimeoutError, ValueError):
        return False


async def _ask(address: Address, port: int) -> bool:
    async with asyncio.timeout(CONNECT_SECONDS):
        reader, writer = await asyncio.open_connection(str(address), port, limit=MAX_BYTES)
    try:
        host = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
        writer.write(REQUEST.format(host=host).encode())
        await writer.drain()
        line = await reader.readuntil(b"\n")
        return line.split(b" ", 2)[:2] in ([b"HTTP/1.1", b"200"], [b"HTTP/1.0", b"200"])
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return False
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
