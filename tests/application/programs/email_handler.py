"""000, section 2.1: a task handler; and the stop of sections 2.2 and 5.2, which is awaited."""

import asyncio

from tideq import tq


def send_email(to: str, subject: str, body: str) -> None:
    print("Mailing", to, f"{subject}:", body, flush=True)


def handle_email_send(payload: dict[str, str]) -> dict[str, str]:
    send_email(payload["to"], payload["subject"], payload["body"])
    return {"message_id": "abc123"}


async def main() -> None:
    tq("email").set_worker(handle_email_send)
    tq("email").add({"to": "ann@example.com", "subject": "Hello", "body": "high tide"})
    tq.start()

    await asyncio.to_thread(input)

    await tq.stop()
    print("Stopped", flush=True)


asyncio.run(main())
