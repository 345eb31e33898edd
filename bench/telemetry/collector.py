"""Receives OTLP over HTTP and discards it with little CPU, which the service on the same machine would lack.

With `hang` it receives everything and never answers.
"""

import asyncio
import re
import sys

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


async def _take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            found = LENGTH.search(head)
            await reader.readexactly(int(found[1]) if found else 0)
            if "hang" not in sys.argv:
                writer.write(ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(_take, "127.0.0.1", 0, limit=2**26)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"http://127.0.0.1:{port}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
