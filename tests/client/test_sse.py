"""Server-sent events from bytes, wherever the stream is cut."""

import pytest

from tideq.client.calls.events import Gap, Message, SseParser, Transition, event_in

STREAM = (
    ': listening\nretry: 1000\nid: 5-0-1\n\nid: 6-0-1\nevent: transition\ndata: {"a":\ndata: "ü"}\n\n\n\n'
    "event: gap\r\ndata: x\r\n\r\ndata\n\nid: 7"
).encode()
MESSAGES = [
    Message("message", "", "5-0-1", 1000),
    Message("transition", '{"a":\n"ü"}', "6-0-1", None),
    Message("gap", "x", None, None),
    Message("message", "", None, None),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_pieces_of_any_size_give_the_same_messages(size: int) -> None:
    parser = SseParser()

    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]

    assert [message for piece in pieces for message in parser.feed(piece)] == MESSAGES


def test_only_known_kinds_with_data_are_events() -> None:
    data = '{"task_id":"t","task_type":"x","status":"queued","at":"2026-03-02T09:15:00.250Z","added":1}'

    transition = event_in(Message("transition", data, "6-0-1", None))

    assert isinstance(transition, Transition)
    assert (transition.task_id, transition.event_id, transition.at.year) == ("t", "6-0-1", 2026)
    assert event_in(Message("gap", '{"detail":"d"}', "7-0-1", None)) == Gap(detail="d", event_id="7-0-1")
    assert event_in(Message("weather", "{}", "8-0-1", None)) is None
    assert event_in(Message("transition", "", "9-0-1", None)) is None
