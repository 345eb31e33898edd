"""Base classes of request and response schemas, and the types that their fields share.

A shared type carries its description and an example. Rules that `queue_core` checks (names, lengths) are only described
here and refused there, with its own message.
"""

from typing import Annotated, Any, ClassVar

import msgspec

Raw = msgspec.Raw
NULL = msgspec.Raw(b"null")
EMPTY_OBJECT = msgspec.Raw(b"{}")
NAME_PATTERN = r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}\Z"
UUID7_PATTERN = r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z"
MAX_WAIT_SECONDS = 30


def about(description: str, *examples: Any, **schema: Any) -> msgspec.Meta:
    """A field's description, examples and other JSON Schema keys.

    `configured` names a value from the service's settings, filled in when the document is made.
    """
    return msgspec.Meta(description=description, examples=list(examples) or None, extra_json_schema=schema or None)


class RequestSchema(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Unknown fields are an error: a typo must not silently leave a default in place."""

    also: ClassVar[dict[str, Any]] = {}
    """Rules between fields, as JSON Schema; the handler checks them."""


class ResponseSchema(msgspec.Struct, kw_only=True):
    """Every field is always present, except one whose default is `UNSET`."""


Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
CheckedName = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": NAME_PATTERN})]
"""A name that `queue_core` checks."""
ShortText = Annotated[str, msgspec.Meta(max_length=255)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=4e9)]
Instant = Annotated[str, about("RFC 3339, in UTC.", "2026-03-02T09:15:00.250Z", format="date-time")]
Count = Annotated[int, msgspec.Meta(ge=0, examples=[0])]
TaskId = Annotated[str, about("A UUIDv7.", "0195546e-3c7a-7d21-9f04-00a1b2c3d4e5", format="uuid")]
TraceId = Annotated[
    str,
    about(
        "The trace the task was submitted with; without one, the 32 digits of the task's id.",
        "4bf92f3577b34da6a3ce929d0e0e4736",
        pattern=r"^[0-9a-f]{32}$",
    ),
]
WorkerId = Annotated[str, about("The worker's id.", "resizer-3f9c51d2a7b8")]
TaskType = Annotated[CheckedName, about("The type of the task; selects its handler.", "resize")]
Priority = Annotated[str, about("One of the configured priority levels.", "high", configured="priorities")]
Lease = Annotated[str, about("Token that proves that the worker holds the task.", "1-5d1f0c9a7be24d30a1c8e6f2b7d94a13")]
JsonObject = Annotated[Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
AnyJson = Annotated[Raw, msgspec.Meta(description="Any JSON value.")]
