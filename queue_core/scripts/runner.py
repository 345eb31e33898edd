"""Assembles Lua files into scripts and calls them with arguments by name.

A script's header is its declaration (see `parse_header`): keys, arguments, rows, replies and includes become `local`
names, so no file contains `KEYS[3]` and the header cannot differ from the code. Every script starts with the epoch
guard and one reading of the store's clock. A reply is a word and its details; every word but `OK` is an error.

Scripts are called by hash, and loaded again when the store has lost them. A Function library was no faster at batch 100
(docs/layouts.md), and would need care after a fail-over.
"""

import asyncio
import functools
import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from typing import Any, NamedTuple, TypeVar

from redis.asyncio.cluster import RedisCluster
from redis.exceptions import NoScriptError

from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.scripts.keys import KEYS, PREFIXES, Keys
from tideq.queue_core.scripts.record import lua_codec
from tideq.queue_core.store.driver_errors import EDGE_ERRORS, translated
from tideq.queue_core.store.store_client import drop_idle_connections

LUA = resources.files("tideq.queue_core.scripts")
DIRECTIVE = re.compile(r"^-- @(\w+)\s*(.*)$")
FUNCTION = re.compile(r"^local function (\w+)\(.*?^end$", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"\w+")
KINDS = {"int", "text", "number"}
MAX_LOADS = 4
MAX_CONCURRENT_CALLS = 8
"""The store runs one script at a time; further calls would only wait there instead of here."""

T = TypeVar("T")
Value = str | bytes | int | float


class Argument(NamedTuple):
    name: str
    kind: str


class ScriptHeader(NamedTuple):
    flags: tuple[str, ...]
    keys: tuple[str, ...]
    prefixes: tuple[str, ...]
    arguments: tuple[Argument, ...]
    columns: tuple[str, ...]
    replies: tuple[str, ...]
    uses: tuple[str, ...]
    is_guarded: bool


class HeaderError(ValueError):
    """A Lua file's header is incomplete or invalid; the message names the file."""


class ScriptSource(NamedTuple):
    """An assembled script: its text, and its header with those of all includes."""

    name: str
    header: ScriptHeader
    text: str
    flags: tuple[str, ...]


def parse_header(name: str, source: str) -> ScriptHeader:
    """Parse the leading comment; raises HeaderError. The directives are:

    `@flags words`, `@unguarded`, `@key name …`, `@prefix name …`, `@arg name kind …`, `@row name …`, `@reply words`,
    `@use includes`.
    """
    found: dict[str, list[str]] = {}
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        if match := DIRECTIVE.match(line):
            found.setdefault(match[1], []).append(match[2])
    if unknown := set(found) - {"flags", "unguarded", "key", "prefix", "arg", "row", "reply", "use"}:
        raise HeaderError(f"{name}: unknown directive @{min(unknown)}")
    return ScriptHeader(
        flags=_words(found.get("flags", [])),
        keys=_first_words(name, found.get("key", []), KEYS),
        prefixes=_first_words(name, found.get("prefix", []), PREFIXES),
        arguments=tuple(_argument(name, text) for text in found.get("arg", [])),
        columns=tuple(text.split()[0] for text in found.get("row", [])),
        replies=_words(found.get("reply", [])),
        uses=_words(found.get("use", [])),
        is_guarded="unguarded" not in found,
    )


def _words(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for line in lines for word in re.split(r"[,\s]+", line.strip()) if word)


def _first_words(name: str, lines: Iterable[str], allowed: Mapping[str, object]) -> tuple[str, ...]:
    words = tuple(line.split()[0] for line in lines)
    if unknown := [word for word in words if word not in allowed]:
        raise HeaderError(f"{name}: {unknown[0]!r} is not in keys.py")
    return words


def _argument(name: str, text: str) -> Argument:
    argument, kind, *_ = [*text.split(), ""]
    if kind not in KINDS:
        raise HeaderError(f"{name}: @arg {argument} has kind {kind!r}, not one of {', '.join(sorted(KINDS))}")
    return Argument(argument, kind)


@functools.cache
def assemble(name: str) -> ScriptSource:
    """Returns the script with all its includes, each once, before the code that uses it."""
    body = (LUA / f"{name}.lua").read_text()
    own = parse_header(name, body)
    includes = _includes(("guard", *own.uses) if own.is_guarded else own.uses)
    headers = [own, *(parse_header(include, text) for include, text in includes.items())]
    header = ScriptHeader(
        flags=own.flags,
        keys=_unique(key for each in headers for key in each.keys),
        prefixes=_unique(prefix for each in headers for prefix in each.prefixes),
        arguments=_unique((Argument("epoch", "text"), *(arg for each in headers for arg in each.arguments))),
        columns=own.columns,
        replies=_unique(reply for each in headers for reply in each.replies),
        uses=tuple(includes),
        is_guarded=own.is_guarded,
    )
    codec, *codes = _used([lua_codec(), *map(_code, includes.values()), _code(body)])
    scoped = [_scoped(code, codes[:at] + codes[at + 1 :]) for at, code in enumerate(codes[:-1])]
    text = "\n".join([_preamble(header), codec, *scoped, codes[-1]])
    return ScriptSource(name, header, text, own.flags)


def assemble_all() -> None:
    """Read all scripts now, so that an upgrade of the files does not mix versions in a running process."""
    for path in LUA.iterdir():
        if path.name.endswith(".lua"):
            assemble(path.name.removesuffix(".lua"))


def _unique(items: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items))


def _code(source: str) -> str:
    """Returns the file without comments, which need not be sent to the store at every start."""
    return "\n".join(line for line in source.splitlines() if line.strip() and not line.lstrip().startswith("--"))


def _used(codes: list[str]) -> list[str]:
    """Remove functions that are not called, also indirectly.

    Every call of a script creates all its functions, at a third of a microsecond each: `start` uses 32 of 49.
    """
    mentions = Counter(WORD.findall("\n".join(codes)))
    unused = [
        function[0]
        for code in codes
        for function in FUNCTION.finditer(code)
        if mentions[function[1]] == WORD.findall(function[0]).count(function[1])
    ]
    if not unused:
        return codes
    return _used([functools.reduce(lambda left, each: left.replace(each, ""), unused, code) for code in codes])


def _scoped(code: str, others: list[str]) -> str:
    """Wrap an include in a block of its own; only names that other files use are visible outside.

    Lua allows 200 local names at once, and private names of includes must not collide.
    """
    words = set(re.findall(r"\w+", "\n".join(others)))
    shared: list[str] = []

    def share(match: re.Match[str]) -> str:
        names = re.findall(r"\w+", match[2])
        if not words.intersection(names):
            return match[0]
        shared.extend(names)
        return f"{match[1] or ''}{match[2]}"

    block = re.sub(r"^local (function )?(\w+(?:, \w+)*)", share, code, flags=re.MULTILINE)
    declared = f"local {', '.join(shared)}\n" if shared else ""
    return f"{declared}do\n{block}\nend"


def _includes(names: tuple[str, ...], found: dict[str, str] | None = None) -> dict[str, str]:
    found = {} if found is None else found
    for name in names:
        if name not in found:
            source = (LUA / "include" / f"{name}.lua").read_text()
            _includes(parse_header(name, source).uses, found)
            found[name] = source
    return found


def _preamble(header: ScriptHeader) -> str:
    """Returns Lua locals for every declared key, prefix, argument and row column."""
    lines = [f"local {key}_key = KEYS[{index}]" for index, key in enumerate(header.keys, 1)]
    position = 0
    for position, prefix in enumerate(header.prefixes, 1):
        lines.append(f"local {prefix}_keys = ARGV[{position}]")
    for position, argument in enumerate(header.arguments, len(header.prefixes) + 1):
        value = f"ARGV[{position}]"
        lines.append(f"local {argument.name} = {value if argument.kind == 'text' else f'tonumber({value})'}")
    if header.columns:
        lines += _row_reader(position, len(header.columns))
    return "\n".join(lines)


def _row_reader(start: int, width: int) -> list[str]:
    values = ", ".join(f"ARGV[at + {column}]" for column in range(1, width + 1))
    return [
        f"local row_count = (#ARGV - {start}) / {width}",
        f"local function row(number) local at = {start} + (number - 1) * {width} return {values} end",
        "local function row_ids()",
        f"  local ids = {{}} for i = 1, row_count do ids[i] = ARGV[{start} + (i - 1) * {width} + 1] end return ids",
        "end",
    ]


class CallTemplate(NamedTuple):
    """The constant part of all calls of one script."""

    source: ScriptSource
    key_count: int
    words: tuple[Value | None, ...]
    """Keys, prefixes, then the arguments, with None for those that vary."""
    positions: Mapping[str, int]
    """Index of each argument in `words`."""
    computed: tuple[tuple[int, Callable[[], Value]], ...]
    """Index and function of the arguments that are computed for every call."""
    required: frozenset[str]
    """Arguments that the caller must pass."""


class Reply(NamedTuple):
    word: str
    details: list[Any]


class Scripts:
    """The scripts of one partition. `constants` fill arguments by name; a callable is evaluated at every call."""

    def __init__(
        self,
        client: Any,
        keys: Keys,
        constants: Mapping[str, Value | Callable[[], Value]],
        *,
        sends_flags: bool = True,
    ) -> None:
        self.epoch = ""
        self.on_replaced: Callable[[], None] = lambda: None
        """Called when a script finds the store in another epoch."""
        self._client = client
        self._is_cluster = isinstance(client, RedisCluster)
        self._keys = keys
        self._constants = {"seed": _seed, "epoch": lambda: self.epoch, **constants}
        self._sends_flags = sends_flags
        self._templates: dict[str, CallTemplate] = {}
        self._hashes: dict[str, str] = {}
        self._slots = {is_bulk: asyncio.Semaphore(MAX_CONCURRENT_CALLS) for is_bulk in (False, True)}

    async def call(
        self, name: str, /, rows: Iterable[Value] = (), *, is_bulk: bool = False, **arguments: Value
    ) -> Reply:
        """Run a script; returns its reply, and raises the store's errors as `QueueError`.

        `rows` is flat, with as many values a row as the header has columns. Calls with `is_bulk`, whose replies may be
        large, do not delay others.
        """
        template = self._templates.get(name) or self._template(name)
        words = self._words(template, arguments)
        words += rows
        async with self._slots[is_bulk]:
            reply = await self._evaluate(template.source, template.key_count, words)
        word = reply[0].decode() if isinstance(reply[0], bytes) else reply[0]
        if word == "EPOCH_MISMATCH":
            self.on_replaced()
        return Reply(word, reply[1:])

    async def drop_idle_connections(self) -> None:
        await drop_idle_connections(self._client)

    def _template(self, name: str) -> "CallTemplate":
        source = assemble(name)
        header, order = source.header, tuple(argument.name for argument in source.header.arguments)
        head = (*map(self._keys.key, header.keys), *map(self._keys.prefix, header.prefixes))
        constants = {each: self._constants[each] for each in order if each in self._constants}
        positions = {each: position for position, each in enumerate(order, len(head))}
        template = self._templates[name] = CallTemplate(
            source,
            len(header.keys),
            (*head, *(None if callable(value := constants.get(each)) else value for each in order)),
            positions,
            tuple((positions[each], value) for each, value in constants.items() if callable(value)),
            frozenset(order) - constants.keys(),
        )
        return template

    def _words(self, template: CallTemplate, arguments: Mapping[str, Value]) -> list[Any]:
        words: list[Any] = list(template.words)
        for position, compute in template.computed:
            words[position] = compute()
        try:
            for name, value in arguments.items():
                words[template.positions[name]] = value
        except KeyError as error:
            raise TypeError(f"{template.source.name} takes no argument {error}") from None
        if not template.required <= arguments.keys():
            raise TypeError(f"{template.source.name} needs argument {min(template.required - arguments.keys())!r}")
        return words

    async def _evaluate(self, source: ScriptSource, key_count: int, words: list[Value]) -> list[Any]:
        try:
            for _ in range(MAX_LOADS):
                try:
                    return await self._client.execute_command("EVALSHA", await self._hash(source), key_count, *words)
                except NoScriptError:
                    # Nothing ran, so a repetition is safe. The store may lose the script again before it.
                    if self._is_cluster:
                        return await self._client.eval(self._shebang(source) + source.text, key_count, *words)
                    self._hashes.pop(source.name, None)
            raise StoreUnavailable(f"the store lost script {source.name} {MAX_LOADS} times right after it was loaded")
        except EDGE_ERRORS as error:
            raise translated(error) from error

    async def _hash(self, source: ScriptSource) -> str:
        """Returns the script's hash. In a cluster nothing is loaded here: loading fails if any node is unreachable."""
        if self._is_cluster and source.name not in self._hashes:
            text = self._shebang(source) + source.text
            self._hashes[source.name] = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        if source.name not in self._hashes:
            self._hashes[source.name] = await self._client.script_load(self._shebang(source) + source.text)
        return self._hashes[source.name]

    def _shebang(self, source: ScriptSource) -> str:
        """With this line, the store refuses a script at its start when memory is full, unless a flag allows it."""
        if not self._sends_flags:
            return ""
        return f"#!lua flags={','.join(source.flags)}\n" if source.flags else "#!lua\n"


def _seed() -> int:
    return random.getrandbits(31)
