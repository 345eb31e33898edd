"""Stores services by name, with their URLs and keys, in a file of the user's.

The file holds keys, so only its owner may read it. Each write replaces the whole file atomically: a reader finds the
old contents or the new ones. A new field needs a default; an old field stays readable for a release.
"""

import contextlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}")
ONLY_OWNER = 0o600
FOR_OTHERS = 0o077


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    url: str
    api_key: str = ""


class Contexts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    current: str = ""
    """The context of commands without `--context`; empty for none."""
    contexts: dict[str, Context] = {}

    def named(self, name: str) -> Context:
        if name not in self.contexts:
            names = ", ".join(sorted(self.contexts)) or "none"
            raise UnknownContext(f"there is no context {name!r}; stored contexts: {names}")
        return self.contexts[name]

    def with_one(self, name: str, context: Context) -> "Contexts":
        """The first context becomes the current one."""
        return Contexts(current=self.current or name, contexts={**self.contexts, name: context})

    def without(self, name: str) -> "Contexts":
        self.named(name)
        rest = {each: context for each, context in self.contexts.items() if each != name}
        return Contexts(current="" if self.current == name else self.current, contexts=rest)

    def using(self, name: str) -> "Contexts":
        self.named(name)
        return msgspec.structs.replace(self, current=name)


class UnknownContext(ValueError):
    pass


class Target(NamedTuple):
    """The service a command calls, and which option, variable or context selected it."""

    url: str | None
    api_key: str | None
    source: str


def contexts_file(environ: Mapping[str, str]) -> Path:
    """A relative XDG_CONFIG_HOME is ignored, as the XDG specification demands."""
    base = environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if base.startswith("/") else Path.home() / ".config"
    return folder / "tideq" / "contexts.json"


def read_contexts(path: Path) -> Contexts:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Contexts)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a file of contexts: {error}") from error


def write_contexts(path: Path, contexts: Contexts) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _put_in_place(path, msgspec.json.format(msgspec.json.encode(contexts), indent=2))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error


def is_open_to_others(path: Path) -> bool:
    return path.exists() and bool(path.stat().st_mode & FOR_OTHERS)


def target(
    url: str | None, api_key: str | None, context: str | None, environ: Mapping[str, str], contexts: Contexts
) -> Target:
    """Options, then the environment, then the current context. A context's key is sent only to its own URL."""
    if url:
        return Target(url, _key(api_key, environ), "--url")
    if context:
        return _in_context(contexts, context, api_key, f"--context {context}")
    if given := environ.get("TIDEQ_URL"):
        return Target(given, _key(api_key, environ), "TIDEQ_URL")
    if name := environ.get("TIDEQ_CONTEXT"):
        return _in_context(contexts, name, _key(api_key, environ), "TIDEQ_CONTEXT")
    if contexts.current:
        return _in_context(contexts, contexts.current, _key(api_key, environ), f"context {contexts.current}")
    return Target(None, _key(api_key, environ), "default")


def _key(api_key: str | None, environ: Mapping[str, str]) -> str | None:
    return environ.get("TIDEQ_API_KEY") if api_key is None else api_key


def _in_context(contexts: Contexts, name: str, api_key: str | None, source: str) -> Target:
    context = contexts.named(name)
    return Target(context.url, context.api_key if api_key is None else api_key, source)


def _put_in_place(path: Path, text: bytes) -> None:
    """`mkstemp` creates a file that only its owner can read, so the keys are never readable by others."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text + b"\n")
            os.fchmod(file.fileno(), ONLY_OWNER)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
