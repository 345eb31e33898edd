"""The loader: headers are declarations, and every script in the tree has a true one."""

import re

import pytest

from tideq.queue_core.scripts.keys import KEYS, PREFIXES, Keys
from tideq.queue_core.scripts.replies import REFUSALS
from tideq.queue_core.scripts.runner import LUA, HeaderError, Scripts, assemble, parse_header
from tideq.queue_core.submission import Prepared, SubmitKind, in_rows

SCRIPTS = sorted(path.name.removesuffix(".lua") for path in LUA.iterdir() if path.name.endswith(".lua"))
INCLUDES = sorted(path.name.removesuffix(".lua") for path in (LUA / "include").iterdir())

FREEING = {
    "acknowledge", "advance_monitor", "cancel", "claim", "complete", "correct_ended_counts", "deregister",
    "enter_epoch", "extend", "fail", "forget", "grant", "heartbeat", "mark_suspect", "peek", "purge",
    "raise_format", "read_clock", "release", "scan_ready", "set_aside", "set_circuits", "set_memory_flag",
    "set_worker_state", "settle_grant", "settle_keys", "start", "sweep", "trial_turn", "undo_claim", "wipe",
}  # fmt: skip
READING = {
    "backlog", "count_ahead", "count_trials", "depth", "ended_counts", "explain", "find_existing",
    "get_worker", "last_correction", "list_rules", "list_unreadable", "list_workers", "outcome_counts", "queue_picture",
    "read", "read_usage", "side_data", "snapshot", "stats", "worker_results",
}  # fmt: skip

UNGUARDED = {"init_store", "enter_epoch", "read_clock"}
"""Scripts that give a store its epoch, or that run before it has one."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_assembles_and_begins_with_the_guard(name: str) -> None:
    source = assemble(name)

    assert source.header.is_guarded == (name not in UNGUARDED)
    assert ("EPOCH_MISMATCH" in source.text) == (name not in ("init_store", "read_clock"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_reads_the_clock_once(name: str) -> None:
    assert assemble(name).text.count("redis.call('TIME')") == (0 if name == "init_store" else 1)


@pytest.mark.parametrize("name", SCRIPTS + [f"include/{name}" for name in INCLUDES])
def test_a_file_says_in_its_first_line_what_it_is(name: str) -> None:
    first_line = (LUA / f"{name}.lua").read_text().splitlines()[0]

    assert first_line.startswith(f"-- {name.removeprefix('include/')}: ")


@pytest.mark.parametrize("name", SCRIPTS + [f"include/{name}" for name in INCLUDES])
def test_a_file_uses_names_not_numbers(name: str) -> None:
    assert not re.search(r"(KEYS|ARGV)\s*\[", (LUA / f"{name}.lua").read_text())


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_uses_every_key_and_argument_it_declares(name: str) -> None:
    body = (LUA / f"{name}.lua").read_text()
    header = parse_header(name, body)
    code = "\n".join(line for line in body.splitlines() if not line.startswith("--"))
    includes = "".join((LUA / "include" / f"{include}.lua").read_text() for include in assemble(name).header.uses)

    declared = [f"{key}_key" for key in header.keys] + [f"{prefix}_keys" for prefix in header.prefixes]
    for local in declared + [argument.name for argument in header.arguments]:
        assert re.search(rf"\b{local}\b", code + includes), f"{local} is declared and not used"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_declares_every_key_it_uses(name: str) -> None:
    source = assemble(name)

    for local in set(re.findall(r"\b(\w+)_keys?\b", source.text)):
        if local in KEYS or local in PREFIXES:
            assert re.search(rf"local {local}_keys? = ", source.text), f"{local} is used and not declared"


@pytest.mark.parametrize("name", SCRIPTS)
def test_only_scripts_that_free_or_finish_run_when_memory_is_full(name: str) -> None:
    flags = assemble(name).flags

    assert ("allow-oom" in flags) == (name in FREEING)
    assert ("no-writes" in flags) == (name in READING)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_reply_word_is_known_to_python(name: str) -> None:
    source = assemble(name)

    assert set(source.header.replies) - {"OK"} <= REFUSALS.keys()
    for word in re.findall(r"'([A-Z]+(?:_[A-Z]+)+)[ ']", source.text):
        if word in REFUSALS:
            assert word in source.header.replies, f"{word} is returned and not declared"


def test_the_rows_of_submit_are_those_python_sends() -> None:
    kind = SubmitKind("resize", "high", 0, 0, 5, 300_000, "")
    plain, special = Prepared("id1", kind, "", "", b"d1"), Prepared("id2", kind, "+5", "name print", b"d2")

    rows = in_rows([plain, special]).rows

    assert assemble("submit").header.columns == ("task_id", "about", "definition")
    assert rows == ["id1", "1", b"d1", "id2", "1 +5 name print", b"d2"]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("-- @kye queue", "unknown directive @kye"),
        ("-- @key nothing zset", "'nothing' is not in keys.py"),
        ("-- @arg limit", "not one of"),
        ("-- @arg limit float", "not one of"),
    ],
)
def test_a_wrong_header_is_refused_with_its_fault(header: str, words: str) -> None:
    with pytest.raises(HeaderError, match=words):
        parse_header("sample", header)


async def test_a_missing_or_unknown_argument_is_refused_before_anything_is_sent() -> None:
    scripts = Scripts(client=None, keys=Keys(), constants={})

    with pytest.raises(TypeError, match="needs argument 'first_format'"):
        await scripts.call("init_store")
    with pytest.raises(TypeError, match="takes no argument 'colour'"):
        await scripts.call("init_store", new_epoch="1", first_format=3, colour="red")
