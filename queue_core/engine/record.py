"""The task record: the changing half of a task, packed into one text of zero-terminated fields.

The lists below are the one definition of it: the scripts' `unpack_record` and `pack_record` are generated from it,
and Python reads records with it. The records of all live tasks are one hash, so a script reads and writes those of a
whole batch in two calls; what else was measured is in docs/layouts.md.

Persisted, in the store and in every outbox event. To change it safely: append a field, and treat an empty
text as "written before this field existed". Never remove, reorder or reuse one.
"""

from typing import NamedTuple

from tideq.queue_core.states import Reason


class Field(NamedTuple):
    name: str
    kind: str
    meaning: str


HOT = (
    Field("state", "text", "TaskState"),
    Field("version", "text", "how many transitions it has made"),
    Field("lane", "text", "which band of the sorted set it waits in"),
    Field("visible_ms", "text", "hidden until then; empty while ready or finished"),
    Field("age_bucket", "text", "priority and minute submitted, retried or replayed: its age counts from here"),
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
    Field("eligible_ms", "text", "the earliest instant it may run; empty for created_ms"),
    Field("queued_ms", "text", "when it last became queued; empty for created_ms"),
    Field("backoff", "text", "own backoff as base,multiplier,cap; empty for the service's"),
    Field("idempotency", "text", "name of the key that stands for it, and fingerprint of what was asked for"),
)
"""What only returning to the queue needs: carried as one text until somebody looks."""

RECORD = HOT + COLD
NAMES = tuple(field.name for field in RECORD)


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
    values = dict(zip(NAMES, packed.decode().split("\0")[:-1], strict=True))
    return Record({**values, "reason": values["reason"] or Reason.SUBMITTED})


def lua_codec() -> str:
    """Lua source of `unpack_record(text) -> table` and `pack_record(table) -> text`.

    Cold fields are unpacked the first time one is read or set (`__index` and `__newindex` fire only for names the
    table does not have). `struct.unpack` splits in a third of the instructions a pattern takes; fakeredis has none.
    """
    hot, cold = [field.name for field in HOT], [field.name for field in COLD]
    thawed = "\n  ".join(f"rawset(task, '{field.name}', {_read(field)})" for field in COLD)
    return f"""
local split = rawget(_G, 'struct') and struct.unpack or function(format, text)
  return string.match(text, '^' .. string.rep('([^%c]*)%c', #format) .. '()')
end
local function thaw(task)
  local {", ".join(cold)} = split('{"s" * len(cold)}', task.cold)
  task.cold = false
  {thawed}
end
local record_type = {{
  __index = function(task, name) if task.cold then thaw(task) return task[name] end end,
  __newindex = function(task, name, value) if task.cold then thaw(task) end rawset(task, name, value) end,
}}
local function unpack_record(packed)
  local {", ".join(hot)}, cold_at = split('{"s" * len(hot)}', packed)
  local cold = string.sub(packed, cold_at)
  return setmetatable({{{", ".join(f"{name} = {name}" for name in hot)}, cold = cold}}, record_type)
end
local function pack_record(task)
  return {_joined(hot)} .. (task.cold or ({_joined(cold)}))
end
"""


def _read(field: Field) -> str:
    return f"tonumber({field.name})" if field.kind == "int" else field.name


def _joined(names: list[str]) -> str:
    return " .. ".join(f"task.{name} .. '\\0'" for name in names)
