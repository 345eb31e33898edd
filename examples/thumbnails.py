"""Thumbnails: CPU work in child processes.

In one terminal, in this folder:    tideq worker --handlers thumbnails
In another:                         python thumbnails.py /tmp/thumbnails

Needs nothing but tideq: pictures are read as PPM and written as PNG with the standard library. With Pillow installed,
`shrunk` would be one line.
"""

import re
import struct
import sys
import zlib
from pathlib import Path

from tideq import Client, Fail, task

Row = list[tuple[int, int, int]]
HEADER = re.compile(rb"P6\s+([1-9]\d*)\s+([1-9]\d*)\s+255\s")


@task(process=True, timeout=60, max_retries=2)
def thumbnail(source: str, target: str, width: int = 60) -> dict[str, int]:
    """A Python process uses one core, so `process=True` runs this handler in a child process."""
    rows = shrunk(read_ppm(Path(source)), width)
    Path(target).write_bytes(png(rows))
    return {"width": len(rows[0]), "height": len(rows)}


def shrunk(rows: list[Row], width: int) -> list[Row]:
    """Each new pixel is the mean of the pixels it replaces."""
    step = max(len(rows[0]) // width, 1)
    heights = range(0, len(rows) - step + 1, step)
    return [[mean(rows, x, y, step) for x in range(0, len(rows[0]) - step + 1, step)] for y in heights]


def mean(rows: list[Row], x: int, y: int, step: int) -> tuple[int, int, int]:
    pixels = [pixel for row in rows[y : y + step] for pixel in row[x : x + step]]
    red, green, blue = (sum(channel) // len(pixels) for channel in zip(*pixels, strict=True))
    return red, green, blue


def read_ppm(path: Path) -> list[Row]:
    """Raises `Fail` for a file that is not a picture: a retry would fail as well."""
    content = path.read_bytes()
    header = HEADER.match(content)
    pixels = content[header.end() :] if header else b""
    if header is None or len(pixels) != 3 * int(header[1]) * int(header[2]):
        raise Fail(f"{path} is not a PPM picture")
    width, flat = int(header[1]), list(zip(pixels[::3], pixels[1::3], pixels[2::3], strict=True))
    return [flat[start : start + width] for start in range(0, len(flat), width)]


def png(rows: list[Row]) -> bytes:
    lines = b"".join(b"\0" + bytes(value for pixel in row for value in pixel) for row in rows)
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def make_picture(path: Path, number: int, width: int = 480, height: int = 320) -> None:
    """Writes stripes and shades that differ with `number`."""
    pixels = (((x * (number + 1)) % 256, y * 255 // height, (x + y) % 256) for y in range(height) for x in range(width))
    path.write_bytes(b"P6 %d %d 255\n" % (width, height) + bytes(value for pixel in pixels for value in pixel))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    sources = [folder / f"picture-{number}.ppm" for number in range(6)]
    for number, source in enumerate(sources):
        make_picture(source, number)
    submitted = thumbnail.submit_many(
        {"source": str(source), "target": str(source.with_suffix(".png"))} for source in sources
    )
    with Client() as client:
        for each in submitted:
            done = client.wait(each.task_id, timeout_seconds=60)
            print(done.status, done.result or done.error)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "thumbnails"))
