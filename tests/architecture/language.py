"""What the tree's language must not have: private words, names used twice, files too long to read, others' insides.

Each ban is a function from text or trees to findings, so that a planted case can show that it finds something.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("queue_core", "persistence", "api", "workers", "tideq")
MAX_LINES = 400

WORDS = {
    "told": "returned, reported, sent, logged",
    "asked": "requested, called, queried",
    "heard": "received",
    "hears": "receives",
    "meant": "expected, configured",
    "whoever": "the caller, the process",
    "whom": "the caller, the process",
    "somebody": "a caller, a process",
    "anybody": "a caller, a process",
    "nobody": "no caller, no process",
    "everybody": "every caller, every process",
    "custody": "verification of the store",
    "custodian": "store guard",
    "belonging": "owner, side data",
    "belongings": "side data",
    "haste": "flush",
    "hurried": "flushed",
    "farewell": "deregistration",
    "goodbye": "deregistration",
    "doubt": "unverified",
}
"""Words of a private language, and the field's words for the same."""

DOCUMENTED = {"_asdict", "_replace", "_exit"}
"""Names with an underscore that the standard library documents."""

MIRRORED = (
    ("api/routes", "api/schemas"),
    ("tideq/cli", "tideq/client/calls", "tideq/client/models", "tideq/client/_async", "tideq/client/_sync"),
)
"""Folders with a file for each resource, by design of one name."""
SAME_EVERYWHERE = {"__init__", "__main__", "settings"}
SIDES = {"service": ("queue_core", "persistence", "api", "workers/monitor"), "user": ("tideq", "workers/runtime")}
"""The service and what runs in a user's process import little of each other, and each has a `Task` of its own."""

WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def private_words(text: str) -> Iterator[tuple[int, str]]:
    """Line and word."""
    for number, line in enumerate(text.splitlines(), 1):
        for word in WORD.findall(line):
            if word.lower() in WORDS:
                yield number, word.lower()


def names_used_twice(names: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Of pairs of a name and where it is defined."""
    places = defaultdict[str, list[str]](list)
    for name, place in names:
        places[name].append(place)
    return {name: found for name, found in places.items() if len(found) > 1}


def class_names(sources: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for place, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, place


def module_names(places: Iterable[str]) -> Iterator[tuple[str, str]]:
    for place in places:
        path = Path(place)
        if path.stem not in SAME_EVERYWHERE:
            folder = str(path.parent)
            home = next((number for number, folders in enumerate(MIRRORED) if folder in folders), None)
            yield (path.stem if home is None else f"{home}:{folder}:{path.stem}"), place


def too_long(text: str) -> bool:
    return len(text.splitlines()) > MAX_LINES


def defined_names(sources: Iterable[str]) -> set[str]:
    """Every name that our own code gives to something."""
    names = set[str]()
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return names


def others_insides(source: str, own_names: set[str]) -> Iterator[tuple[int, str]]:
    """Private attributes and modules that no code of ours defines: a library may drop them in any release."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own_names:
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith(("tideq", "tests")):
            for part in (*node.module.split("."), *(alias.name for alias in node.names)):
                if _is_private(part):
                    yield node.lineno, f"{node.module}.{part}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def product_sources(*suffixes: str) -> dict[str, str]:
    """By path from the root, links left out."""
    found: dict[str, str] = {}
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*")):
            is_built = {"node_modules", "static", "__pycache__"} & set(path.parts) or path.name == "schema.d.ts"
            if path.suffix in suffixes and not is_built and not any(each.is_symlink() for each in path.parents):
                found[str(path.relative_to(ROOT))] = path.read_text()
    return found


def docs() -> dict[str, str]:
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def side_of(place: str) -> str:
    return next((side for side, folders in SIDES.items() if place.startswith(folders)), "service")
