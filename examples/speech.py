"""Speech in batches: claims tasks and reports results itself, without the worker runtime.

    python speech.py /tmp/speech

A speech model is fastest with many sentences at once, so this program claims eight tasks at a time. The speech here is
a tone for every letter, written as WAV with the standard library.
"""

import math
import struct
import sys
import wave
from pathlib import Path

from tideq import Client
from tideq.client.bulk import PullQueue

RATE = 8_000
SECONDS_A_LETTER = 0.02
BATCH = 8
SENTENCES = [f"Wave {number} of the rising tide." for number in range(20)] + ["", "1234567890" * 50]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with Client() as client, PullQueue(client, "speak") as queue:
        queue.enqueue({"number": number, "text": text} for number, text in enumerate(SENTENCES))
        # The lease of each batch lasts a minute. Tasks not finished by then return to the queue by themselves,
        # and so do all held tasks if this process dies.
        while batch := queue.dequeue(BATCH, visibility_timeout=60, wait_seconds=1):
            for task in batch:
                text = task.parameters["text"]
                if not text:
                    # A retry would fail as well, so the task becomes a dead letter.
                    queue.mark_as_discarded(task.task_id, "the text is empty", code="EMPTY")
                    continue
                path = folder / f"{task.parameters['number']:02}.wav"
                seconds = speak(text, path)
                queue.mark_as_complete(task.task_id, {"file": str(path), "seconds": seconds})
            print(f"a batch of {len(batch)}")


def speak(text: str, path: Path) -> float:
    samples = [sample for letter in text for sample in tone(200 + 10 * (ord(letter) % 64))]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    return len(samples) / RATE


def tone(hertz: int) -> list[int]:
    return [round(8_000 * math.sin(2 * math.pi * hertz * n / RATE)) for n in range(int(RATE * SECONDS_A_LETTER))]


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "speech"))
