"""One probe: a plain HTTP request for /health to a checked address, with every length bounded.

No client library: it would follow redirects, read proxies from the environment and whole responses into memory.
Returns only whether the worker is healthy: status, body or time would turn the monitor into a port scanner.
"""

import asyncio
import contextlib

from tideq.workers.monitor.addresses import Address

CONNECT_SECONDS = 1.0
TOTAL_SECONDS = 2.0
MAX_BYTES = 1_024
REQUEST = "GET /health HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tideq-monitor\r\nConnection: close\r\n\r\n"


async def probe(address: Address, port: int) -> bool:
    """Returns whether /health answers 200. Takes at most TOTAL_SECONDS."""
    try:
        async with asyncio.timeout(TOTAL_SECONDS):
            return await _request_health(address, port)
    except (OSError, TimeoutError, ValueError):
        return False


async def _request_health(address: Address, port: int) -> bool:
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
