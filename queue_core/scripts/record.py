"""The task record: the changing half of a task, packed into one text of zero-terminated fields.

The lists below define the record: the scripts' codec is generated from them, and Python parses records by them. All
records of live tasks are in one hash, so a script reads and writes a batch in two calls; docs/layouts.md has the
measured alternatives.

Persisted in the store, in every outbox event and in history's rows. A record begins with the number of its format
(`store/formats.py`).

To change the record safely: append a field, with a default for records written before. Earlier versions keep an unknown
field byte for byte. Never remove, reorder or reuse a field. Any other change is a new format.
"""

import operator
import re
from collections.abc import Callable
from typing import NamedTuple

from tideq.queue_core.states import Reason
from tideq.queue_core.store.formats import NEWEST_FORMAT, READABLE_FORMATS


class Field(NamedTuple):
    name: str
    kind: str
    meaning: str
    default: str = ""
    """Value in records written before the field existed."""


HOT = (
    Field("state", "text", "TaskState"),
    Field("version", "text", "number of its transitions"),
    Field("lane", "text", "number of its lane, a band of the sorted set"),
    Field("visible_ms", "text", "hidden until this instant; empty while ready or finished"),
    Field("age_bucket", "text", "priority, and the minute from which on it may run, where its age begins"),
    Field("timeout_ms", "text", "how long one execution may take"),
    Field("attempt", "text", "number of the current or last attempt"),
    Field("lease", "text", "lease of the attempt: its number, a random token of the claim, the place in the claim"),
    Field("worker", "text", "worker of the current or last attempt"),
    Field("reason", "text", "why it is in this state; empty for submitted"),
    Field("assigned_ms", "text", "when it was last claimed"),
    Field("started_ms", "text", "when it last started"),
    Field("ended_ms", "text", "when it became terminal"),
    Field("last_result", "text", "lease, digest and outcome of the last accepted result"),
)
"""The fields that are read and written from claim to result. Texts in Lua, where formatting a number costs half a
microsecond: instants and counters become numbers only for arithmetic."""

COLD = (
    Field("rank", "int", "its place in the order of all tasks"),
    Field("max_retries", "int", "retry budget"),
    Field("retries", "int", "used part of the retry budget"),
    Field("losses", "int", "workers that died executing it"),
    Field("deliveries", "int", "assignments that lapsed unstarted"),
    Field("created_ms", "text", "when it was first submitted"),
    Field(
        "eligible_ms",
        "text",
        "the earliest instant it may run, after a 0 if requeued by hand; empty for created_ms",
    ),
    Field("queued_ms", "text", "when it last became queued; empty for created_ms"),
    Field("backoff", "text", "own backoff as base,multiplier,cap; empty for the service's"),
    Field("idempotency", "text", "name of its idempotency key, and fingerprint of the submission"),
)
"""The fields that only a return to the queue needs: one text in Lua until one of them is read."""

RECORD = HOT + COLD
NAMES = tuple(field.name for field in RECORD)
INSTANTS = ("visible_ms", "assigned_ms", "started_ms", "ended_ms", "eligible_ms", "queued_ms")
"""Fields that may be empty."""
NUMBERS = (
    "version", "lane", "timeout_ms", "attempt", "rank", "max_retries", "retries", "losses", "deliveries", "created_ms",
)  # fmt: skip
NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)
FIRST_COUNT = 24
"""Fields of the first release: a record with fewer is damaged."""
DEFAULTS = [field.default for field in RECORD]
FORMAT_NUMBERS = frozenset(map(str, READABLE_FORMATS))


class UnreadableRecord(ValueError):
    """The record is damaged, or of a format that this version cannot read."""


class Record(NamedTuple):
    """A parsed record: texts by field name."""

    values: dict[str, str]

    def text(self, name: str) -> str:
        return self.values[name]

    def number(self, name: str) -> int:
        return int(self.values[name])

    def instant(self, name: str) -> int | None:
        return int(self.values[name]) if self.values[name] else None

    def packed(self) -> bytes:
        return "\0".join([str(NEWEST_FORMAT), *(self.values[name] for name in NAMES), ""]).encode()

    @property
    def priority(self) -> str:
        return self.values["age_bucket"].rpartition(":")[0]


def parse_record(packed: bytes) -> Record:
    """Raises UnreadableRecord."""
    try:
        fields = record_fields(packed.decode())
    except UnicodeDecodeError as error:
        raise UnreadableRecord("a record is not text") from error
    values = dict(zip(NAMES, fields, strict=False))
    return Record({**values, "reason": values["reason"] or Reason.SUBMITTED})


def checked_record(packed: bytes) -> Record:
    """Parse a record and check that its numeric fields are numbers; raises UnreadableRecord."""
    record = parse_record(packed)
    for name in NUMBERS:
        if not NUMBER.fullmatch(record.values[name]):
            raise UnreadableRecord(f"a record has {record.values[name]!r} where its {name} should be")
    for name in INSTANTS:
        if record.values[name] and not NUMBER.fullmatch(record.values[name]):
            raise UnreadableRecord(f"a record has {record.values[name]!r} where its {name} should be")
    return record


def readable_record(packed: bytes) -> Record | None:
    """Returns the checked record, or None if it is unreadable."""
    try:
        return checked_record(packed)
    except UnreadableRecord:
        return None


def record_fields(text: str, separator: str = "\0") -> list[str]:
    """Returns the fields in the order of `NAMES`, then an empty text; raises UnreadableRecord."""
    number, _, rest = text.partition(separator)
    _check_format(number)
    *present, end = rest.split(separator)
    if len(present) < FIRST_COUNT or end:
        raise UnreadableRecord(f"a record has {len(present)} whole fields, not {FIRST_COUNT} or more")
    return [*present[: len(NAMES)], *DEFAULTS[len(present) :], ""]


def without_number(packed: bytes) -> bytes:
    """Returns the record without its format number, so that it begins with the state; raises UnreadableRecord.

    For callers that need a few fields of very many records.
    """
    number, _, rest = packed.partition(b"\0")
    _check_format(number.decode(errors="replace"))
    return rest


def _check_format(number: str) -> None:
    if number not in FORMAT_NUMBERS:
        raise UnreadableRecord(f"a record has format {number[:20]!r}, which this version cannot read")


def record_field(packed: bytes, name: str) -> bytes:
    """Returns one field, unchecked; raises UnreadableRecord. The rest of the record may be damaged."""
    place = NAMES.index(name)
    fields = without_number(packed).split(b"\0", place + 1)
    if len(fields) <= place:
        raise UnreadableRecord(f"a record ends before its {name}")
    return fields[place]


def fields_reader(*names: str) -> Callable[[bytes], tuple[bytes, ...]]:
    """Returns a function that takes these fields from a record, unchecked; the function raises UnreadableRecord.

    For callers that need the same fields of very many records: the record is split up to the last of the fields.
    """
    places = [NAMES.index(name) + 1 for name in names]
    take, count = operator.itemgetter(*places), max(places) + 1
    format_numbers = frozenset(number.encode() for number in FORMAT_NUMBERS)

    def read_fields(packed: bytes) -> tuple[bytes, ...]:
        fields = packed.split(b"\0", count)
        if fields[0] not in format_numbers:
            raise UnreadableRecord("a record has a format that this version cannot read")
        if len(fields) <= count:
            raise UnreadableRecord(f"a record has {len(fields) - 2} whole fields, not {count - 1} or more")
        return take(fields)

    return read_fields


def lua_codec() -> str:
    """Returns Lua source of `unpack_record(text) -> table`, `has_cold(table)` and `pack_record(table) -> text`.

    `unpack_record` raises for a text that cannot be split; scripts call `read_record` of load_task.lua instead. Cold
    fields are unpacked when one is first read or set (`__index` and `__newindex` fire only for absent names), and
    `has_cold` checks in advance whether they can be. `struct.unpack` takes a third of a pattern's instructions, but
    fakeredis lacks it.
    """
    hot, cold = [field.name for field in HOT], [field.name for field in COLD]
    thawed = "\n  ".join(f"rawset(task, '{field.name}', {_read(field)})" for field in COLD)
    first_cold = FIRST_COUNT - len(HOT)
    later = ", ".join(f"'{field.default}'" for field in COLD[first_cold:])
    cold_numbers = " and ".join(f"task.{field.name}" for field in COLD if field.kind == "int")
    formats = ", ".join(f"['{number}'] = '{number}\\0'" for number in READABLE_FORMATS)
    return f"""
local split = rawget(_G, 'struct') and struct.unpack or function(format, text)
  return string.match(text, '^' .. string.rep('([^%z]*)%z', #format) .. '()')
end
local later_defaults = {{{later}}}
local function completed(cold)
  local _, count = string.gsub(cold, '%z', '')
  for i = count - {first_cold - 1}, #later_defaults do cold = cold .. later_defaults[i] .. '\\0' end
  return cold
end
local function thaw(task)
  local _, {", ".join(cold)}, tail_at = pcall(split, '{"s" * len(cold)}', task.cold)
  if not tail_at then
    task.cold = completed(task.cold)
    {", ".join(cold)}, tail_at = split('{"s" * len(cold)}', task.cold)
  end
  local tail = string.sub(task.cold, tail_at)
  task.cold = false
  rawset(task, 'tail', tail)
  {thawed}
end
local record_type = {{
  __index = function(task, name) if task.cold then thaw(task) return task[name] end end,
  __newindex = function(task, name, value) if task.cold then thaw(task) end rawset(task, name, value) end,
}}
local format_numbers, format_number = {{{formats}}}, ''
local function unpack_record(packed)
  local number, {", ".join(hot)}, cold_at = split('s{"s" * len(hot)}', packed)
  if not format_numbers[number] then error('unknown format') end
  local cold = string.sub(packed, cold_at)
  return setmetatable({{{", ".join(f"{name} = {name}" for name in hot)}, cold = cold}}, record_type)
end
local function has_cold(task)
  return (not task.cold or pcall(thaw, task)) and {cold_numbers} and true
end
local function pack_record(task)
  return format_number .. {_joined(hot)} .. (task.cold or ({_joined(cold)} .. (task.tail or '')))
end
"""


def _read(field: Field) -> str:
    return f"tonumber({field.name})" if field.kind == "int" else field.name


def _joined(names: list[str]) -> str:
    return " .. ".join(f"task.{name} .. '\\0'" for name in names)
