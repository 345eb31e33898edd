"""Lua files as Python callables that take their arguments by name.

A script's header is its declaration (see `parse_header`): keys, arguments, rows, replies and includes become
`local` names, so no `KEYS[3]` is ever written and the comment cannot lie. Every script starts with the epoch
guard and one reading of the store's clock. A reply is a word and its details; every word but `OK` is an error.

Scripts are called by hash and loaded again when the store has forgotten them. EVALSHA was measured against
a Function library (docs/layouts.md): no difference at batch 100, and scripts need no care after a fail-over.
"""

import asyncio
import functools
import hashlib
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import resources
from typing import Any, NamedTuple, TypeVar

from redis.asyncio.cluster import RedisCluster
from redis.exceptions import NoScriptError

from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.scripts.keys import KEYS, PREFIXES, Keys
from tideq.queue_core.scripts.record import lua_codec
from tideq.queue_core.store.driver_errors import EDGE_ERRORS, translated
from tideq.queue_core.store.line import StoreClient
from tideq.queue_core.store.reconnecting import drop_idle_connections

LUA = resources.files("tideq.queue_core.scripts")
DIRECTIVE = re.compile(r"^-- @(\w+)\s*(.*)$")
FUNCTION = re.compile(r"^local function (\w+)\(.*?^end$", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"\w+")
KINDS = {"int", "text", "number"}
MAX_LOADS = 4
MAX_CONCURRENT_CALLS = 8
"""The store runs one script at a time; more calls under way would only wait there instead of here."""

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
    """A Lua file's header does not say what the loader needs to know."""


class ScriptSource(NamedTuple):
    """One assembled script: its text, and what it takes in which order."""

    name: str
    header: ScriptHeader
    text: str
    flags: tuple[str, ...]


def parse_header(name: str, source: str) -> ScriptHeader:
    """Read the leading comment.

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


def _first_words(name: str, lines: Iterable[str], known: Mapping[str, object]) -> tuple[str, ...]:
    words = tuple(line.split()[0] for line in lines)
    if unknown := [word for word in words if word not in known]:
        raise HeaderError(f"{name}: {unknown[0]!r} is not in keys.py")
    return words


def _argument(name: str, text: str) -> Argument:
    argument, kind, *_ = [*text.split(), ""]
    if kind not in KINDS:
        raise HeaderError(f"{name}: @arg {argument} must say one of {', '.join(sorted(KINDS))}")
    return Argument(argument, kind)


@functools.cache
def assemble(name: str) -> ScriptSource:
    """A script with all its includes, each once, what is used before what uses it."""
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
    """Read every script now: a process that goes on while its files are replaced must not meet newer ones later."""
    for path in LUA.iterdir():
        if path.name.endswith(".lua"):
            assemble(path.name.removesuffix(".lua"))


def _unique(items: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items))


def _code(source: str) -> str:
    """A file without its comments: they are for readers, and every start of the service sends every script."""
    return "\n".join(line for line in source.splitlines() if line.strip() and not line.lstrip().startswith("--"))


def _used(codes: list[str]) -> list[str]:
    """Without the functions that nobody calls, nor what only those called.

    Every call of a script makes all its functions anew, a third of a microsecond each: of 49 `start` uses 32.
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
    """An include in a block of its own, outside of which only the names that other files use are visible.

    Lua allows 200 local names at once, and private names of one include must not meet those of another.
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
    """Locals for every declared key, prefix, argument and row column."""
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


class Form(NamedTuple):
    """What is the same in every call of one script."""

    source: ScriptSource
    key_count: int
    words: tuple[Value | None, ...]
    """Those of the head, then the arguments as far as they are settings."""
    places: Mapping[str, int]
    """Where among them each argument goes."""
    asked: tuple[tuple[int, Callable[[], Value]], ...]
    """Where those go that are asked for at every call."""
    needed: frozenset[str]
    """Arguments that only the caller knows."""


class Reply(NamedTuple):
    word: str
    details: list[Any]


class Scripts:
    """The scripts of one store. `constants` fill arguments of their name; a callable is asked at every call."""

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
        """Called whenever the store turns out to be of another epoch."""
        self._client = client
        self._is_cluster = isinstance(client, RedisCluster)
        self._keys = keys
        self._constants = {"seed": _seed, "epoch": lambda: self.epoch, **constants}
        self._sends_flags = sends_flags
        self._forms: dict[str, Form] = {}
        self._hashes: dict[str, str] = {}
        self._turns = {is_bulk: asyncio.Semaphore(MAX_CONCURRENT_CALLS) for is_bulk in (False, True)}

    async def call(
        self, name: str, /, rows: Iterable[Value] = (), *, is_bulk: bool = False, **arguments: Value
    ) -> Reply:
        """Run a script. `rows` is flat: as many values a row as the header has columns.

        `is_bulk` where the reply may be large: then small ones do not wait behind it.
        """
        form = self._forms.get(name) or self._form(name)
        words = self._words(form, arguments)
        words += rows
        async with self._turns[is_bulk]:
            reply = await self._evaluate(form.source, form.key_count, words, is_bulk=is_bulk)
        word = reply[0].decode() if isinstance(reply[0], bytes) else reply[0]
        if word == "EPOCH_MISMATCH":
            self.on_replaced()
        return Reply(word, reply[1:])

    async def drop_idle_connections(self) -> None:
        await drop_idle_connections(self._client)

    def _form(self, name: str) -> "Form":
        source = assemble(name)
        header, order = source.header, tuple(argument.name for argument in source.header.arguments)
        head = (*map(self._keys.key, header.keys), *map(self._keys.prefix, header.prefixes))
        known = {each: self._constants[each] for each in order if each in self._constants}
        places = {each: place for place, each in enumerate(order, len(head))}
        form = self._forms[name] = Form(
            source,
            len(header.keys),
            (*head, *(None if callable(value := known.get(each)) else value for each in order)),
            places,
            tuple((places[each], value) for each, value in known.items() if callable(value)),
            frozenset(order) - known.keys(),
        )
        return form

    def _words(self, form: Form, arguments: Mapping[str, Value]) -> list[Any]:
        """What is the same in every call is copied, not looked up: a submission has 37 words before its rows."""
        words: list[Any] = list(form.words)
        for place, ask in form.asked:
            words[place] = ask()
        try:
            for name, value in arguments.items():
                words[form.places[name]] = value
        except KeyError as error:
            raise TypeError(f"{form.source.name} takes no argument {error}") from None
        if not form.needed <= arguments.keys():
            raise TypeError(f"{form.source.name} needs argument {min(form.needed - arguments.keys())!r}")
        return words

    async def _evaluate(self, source: ScriptSource, key_count: int, words: list[Value], *, is_bulk: bool) -> list[Any]:
        try:
            for _ in range(MAX_LOADS):
                try:
                    return await self._ask("EVALSHA", await self._hash(source), key_count, *words, is_bulk=is_bulk)
                except NoScriptError:
                    # Nothing ran, so it is safe to load the script and ask again; it may be forgotten in between.
                    if self._is_cluster:
                        return await self._client.eval(self._shebang(source) + source.text, key_count, *words)
                    self._hashes.pop(source.name, None)
            raise StoreUnavailable("the store forgets its scripts as soon as they are loaded")
        except EDGE_ERRORS as error:
            raise translated(error) from error

    def _ask(self, *words: Any, is_bulk: bool) -> Awaitable[Any]:
        """A cluster's nodes, and a store that is only made believe, are asked by the driver's own way."""
        client = self._client
        return (
            client.ask(*words, is_bulk=is_bulk) if isinstance(client, StoreClient) else client.execute_command(*words)
        )

    async def _hash(self, source: ScriptSource) -> str:
        """Loading goes to every node of a cluster, also to one that is away: there it is sent where it is needed."""
        if self._is_cluster and source.name not in self._hashes:
            text = self._shebang(source) + source.text
            self._hashes[source.name] = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        if source.name not in self._hashes:
            self._hashes[source.name] = await self._client.script_load(self._shebang(source) + source.text)
        return self._hashes[source.name]

    def _shebang(self, source: ScriptSource) -> str:
        """With a shebang the store refuses the whole script when memory is full, unless a flag says it frees some."""
        if not self._sends_flags:
            return ""
        return f"#!lua flags={','.join(source.flags)}\n" if source.flags else "#!lua\n"


def _seed() -> int:
    return random.getrandbits(31)
