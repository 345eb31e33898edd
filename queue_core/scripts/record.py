"""The task record: the changing half of a task, packed into one text of zero-terminated fields.

The lists below are the one definition of it: the scripts' codec is generated from it, and Python reads records with it.
The records of all live tasks are one hash, so a script reads and writes those of a whole batch in two calls; what else
was measured is in docs/layouts.md.

Persisted, in the store, in every outbox event and in history's rows. Format 1 begins with the state; every later format
begins with its number, which no state does, so one look at the first field tells them apart. Format 2 has the same
fields behind its number. Which of them is written says `format` in the store's `meta` (see `store_format.py`); both
are read everywhere.

To change it safely: append a field, with the default that a record written before it is read with. A version that
does not know the field keeps it byte for byte. Never remove, reorder or reuse one. Any other change is a new format.
"""

import re
from typing import NamedTuple

from tideq.queue_core.states import Reason
from tideq.queue_core.store.formats import READABLE_FORMATS


class Field(NamedTuple):
    name: str
    kind: str
    meaning: str
    default: str = ""
    """What it is read as in a record that was written before the field existed."""


HOT = (
    Field("state", "text", "TaskState"),
    Field("version", "text", "how many transitions it has made"),
    Field("lane", "text", "which band of the sorted set it waits in"),
    Field("visible_ms", "text", "hidden until then; empty while ready or finished"),
    Field("age_bucket", "text", "priority, and the minute from which on it may run: its age counts from here"),
    Field("timeout_ms", "text", "how long one execution may take"),
    Field("attempt", "text", "number of the current or last attempt"),
    Field("lease", "text", "who may speak for it: attempt number, random token of its claim, place in it"),
    Field("worker", "text", "worker of the current or last attempt"),
    Field("reason", "text", "why it is in this state; empty for submitted"),
    Field("assigned_ms", "text", "when it was last claimed"),
    Field("started_ms", "text", "when it last started"),
    Field("ended_ms", "text", "when it became terminal"),
    Field("settled", "text", "lease, digest and outcome of the last accepted result"),
)
"""What the way from claim to result reads and writes. Kept as texts in Lua: a number costs half a microsecond to
format, so instants and counters are only turned into numbers where they are reckoned with."""

COLD = (
    Field("rank", "int", "where it stands among all others"),
    Field("max_retries", "int", "retry budget"),
    Field("retries", "int", "spent of the retry budget"),
    Field("losses", "int", "workers that died executing it"),
    Field("deliveries", "int", "assignments that lapsed unstarted"),
    Field("created_ms", "text", "when it was first submitted"),
    Field(
        "eligible_ms",
        "text",
        "the earliest instant it may run, a 0 before it where revived; empty for created_ms",
    ),
    Field("queued_ms", "text", "when it last became queued; empty for created_ms"),
    Field("backoff", "text", "own backoff as base,multiplier,cap; empty for the service's"),
    Field("idempotency", "text", "name of the key that stands for it, and fingerprint of what was asked for"),
)
"""What only returning to the queue needs: carried as one text until somebody looks."""

RECORD = HOT + COLD
NAMES = tuple(field.name for field in RECORD)
INSTANTS = ("visible_ms", "assigned_ms", "started_ms", "ended_ms", "eligible_ms", "queued_ms")
"""Those that may be empty."""
NUMBERS = (
    "version", "lane", "timeout_ms", "attempt", "rank", "max_retries", "retries", "losses", "deliveries", "created_ms",
)  # fmt: skip
NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)
FIRST_COUNT = 24
"""Fields of the first release: a record with fewer is damaged."""
DEFAULTS = [field.default for field in RECORD]
SPLIT_COUNT = len(RECORD) + 1
"""Parts that a record of format 1 with exactly these fields falls into: nothing follows the last separator."""


class UnreadableRecord(ValueError):
    """Damaged, or written in a format that this version does not know."""


class Record(NamedTuple):
    """A record as Python sees it: texts by name."""

    values: dict[str, str]

    def text(self, name: str) -> str:
        return self.values[name]

    def number(self, name: str) -> int:
        return int(self.values[name])

    def instant(self, name: str) -> int | None:
        return int(self.values[name]) if self.values[name] else None

    def packed(self) -> bytes:
        """As the store keeps it."""
        return "".join(f"{self.values[name]}\0" for name in NAMES).encode()

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
    """The same, and everything that is reckoned with is a number; raises UnreadableRecord."""
    record = parse_record(packed)
    for name in NUMBERS:
        if not NUMBER.fullmatch(record.values[name]):
            raise UnreadableRecord(f"a record has {record.values[name]!r} where its {name} should be")
    for name in INSTANTS:
        if record.values[name] and not NUMBER.fullmatch(record.values[name]):
            raise UnreadableRecord(f"a record has {record.values[name]!r} where its {name} should be")
    return record


def readable_record(packed: bytes) -> Record | None:
    """None where it cannot be read, or reckoned with."""
    try:
        return checked_record(packed)
    except UnreadableRecord:
        return None


def record_fields(text: str, separator: str = "\0") -> list[str]:
    """The fields in the order of `NAMES`, and an empty text behind the last; raises UnreadableRecord."""
    fields = text.split(separator)
    if len(fields) == SPLIT_COUNT and not fields[0].isdigit():
        return fields
    return _completed(text.split(separator, 1)[1].split(separator) if _format_of(fields[0]) > 1 else fields)


def _format_of(first_field: str) -> int:
    number = int(first_field) if first_field.isdecimal() and first_field.isascii() else 1
    if number not in READABLE_FORMATS:
        raise UnreadableRecord(f"a record has format {number}, which this version does not know")
    return number


def _completed(fields: list[str]) -> list[str]:
    """Without the fields that this version does not know; with the defaults of those that the record does not have."""
    *known, end = fields
    if len(known) < FIRST_COUNT or end:
        raise UnreadableRecord(f"a record has {len(known)} whole fields, not {FIRST_COUNT} or more")
    return [*known[: len(NAMES)], *DEFAULTS[len(known) :], ""]


def without_number(packed: bytes) -> bytes:
    """A record that begins with its state, whatever its format; raises UnreadableRecord.

    For those that look at some fields of very many records: it costs the usual record one comparison.
    """
    if not packed[:1].isdigit():
        return packed
    number, _, rest = packed.partition(b"\0")
    _format_of(number.decode())
    return rest


def lua_codec() -> str:
    """Lua source of `unpack_record(text) -> table`, `has_cold(table)` and `pack_record(table) -> text`.

    Unpacking raises what cannot be split; `read_record` in load_task.lua is what scripts call. Cold fields are unpacked
    the first time one is read or set (`__index` and `__newindex` fire only for names the table does not have);
    `has_cold` says whether they can be, before anything relies on them. `struct.unpack` splits in a third of the
    instructions a pattern takes; fakeredis has none.
    """
    hot, cold = [field.name for field in HOT], [field.name for field in COLD]
    thawed = "\n  ".join(f"rawset(task, '{field.name}', {_read(field)})" for field in COLD)
    first_cold = FIRST_COUNT - len(HOT)
    later = ", ".join(f"'{field.default}'" for field in COLD[first_cold:])
    cold_numbers = " and ".join(f"task.{field.name}" for field in COLD if field.kind == "int")
    formats = ", ".join(f"['{number}'] = '{_beginning(number)}'" for number in READABLE_FORMATS)
    is_numbered = " or ".join(f"state == '{number}'" for number in READABLE_FORMATS if number > 1)
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
local function unpack_record(packed)
  local {", ".join(hot)}, cold_at = split('{"s" * len(hot)}', packed)
  if {is_numbered} then return unpack_record(string.sub(packed, #state + 2)) end
  local cold = string.sub(packed, cold_at)
  return setmetatable({{{", ".join(f"{name} = {name}" for name in hot)}, cold = cold}}, record_type)
end
local function has_cold(task)
  return (not task.cold or pcall(thaw, task)) and {cold_numbers} and true
end
local format_numbers, format_number = {{{formats}}}, ''
local function pack_record(task)
  return format_number .. {_joined(hot)} .. (task.cold or ({_joined(cold)} .. (task.tail or '')))
end
"""


def _beginning(number: int) -> str:
    return "" if number == 1 else f"{number}\\0"


def _read(field: Field) -> str:
    return f"tonumber({field.name})" if field.kind == "int" else field.name


def _joined(names: list[str]) -> str:
    return " .. ".join(f"task.{name} .. '\\0'" for name in names)
