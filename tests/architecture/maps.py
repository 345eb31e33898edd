"""Maps that are drawn from the code: `make maps` writes them into the READMEs, a test compares."""

import re
from pathlib import Path

from tideq.queue_core.scripts.keys import KEYS, PREFIXES, Keys
from tideq.queue_core.scripts.record import RECORD
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.transitions import TRANSITIONS

ROOT = Path(__file__).parents[2]


def lifecycle() -> str:
    """Mermaid, so that the picture is one on the web and readable in a terminal."""
    lines = ["```mermaid", "stateDiagram-v2", "    direction LR"]
    for move in TRANSITIONS:
        for source in move.sources or ("[*]",):
            lines += [f"    {source} --> {target}: {move.verb}" for target in move.targets if source != target]
    return "\n".join([*lines, "```"])


def states() -> str:
    return "\n".join(f"- **{state}**: {_doc(TaskState, state.name)}" for state in TaskState)


def reasons() -> str:
    return "\n".join(f"- `{reason}`: {_doc(Reason, reason.name)}" for reason in Reason)


def key_map() -> str:
    rows = [f"| `{doc.suffix}` | {doc.type} | {doc.meaning} |" for doc in KEYS.values()]
    rows += [f"| `{doc.suffix}<id>` | {doc.type} | {doc.meaning} |" for doc in PREFIXES.values()]
    tag = Keys().tag
    return "\n".join(
        [f"Every name begins with `{tag}`.", "", "| key | type | what it holds |", "| --- | --- | --- |", *rows]
    )


def record() -> str:
    rows = [f"| `{field.name}` | {field.meaning} |" for field in RECORD]
    return "\n".join(["| field | meaning |", "| --- | --- |", *rows])


def _doc(enum: type, member: str) -> str:
    source = (ROOT / "queue_core" / "states.py").read_text()
    block = source[source.index(f"class {enum.__name__}(") :]
    found = re.search(rf'\b{member} = "\w+"\n    """(.*?)"""', block, re.DOTALL)
    assert found, f"{member} has no docstring"
    return " ".join(found[1].split())


MAPS = {
    ("README.md", "lifecycle"): lifecycle,
    ("queue_core/README.md", "lifecycle"): lifecycle,
    ("queue_core/README.md", "states"): states,
    ("queue_core/README.md", "reasons"): reasons,
    ("queue_core/README.md", "keys"): key_map,
    ("queue_core/README.md", "record"): record,
}


def drawn(text: str, name: str, content: str) -> str:
    """The text with the map between its markers replaced."""
    begin, end = f"<!-- map: {name} -->", "<!-- end -->"
    start = text.index(begin) + len(begin)
    return f"{text[:start]}\n{content}\n{text[text.index(end, start) :]}"


def main() -> None:
    for (file, name), draw in MAPS.items():
        path = ROOT / file
        path.write_text(drawn(path.read_text(), name, draw()))


if __name__ == "__main__":
    main()
