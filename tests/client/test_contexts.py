"""`tideq context`: services by name, and what wins over them."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.client.commands import Run, runner
from tests.stores import free_port
from tideq.cli.commands import app
from tideq.cli.contexts import Context, Contexts, Target, UnknownContext, read_contexts, target, write_contexts

Ask = Callable[..., tuple[int, str, str]]
KEY = "tq_0123456789ab_ab_cd-secret"
HOME = Context(url="http://home", api_key="home-key")
KNOWN = Contexts(current="home", contexts={"home": HOME, "away": Context(url="http://away")})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """No URL in the environment: what is remembered has to do."""
    return runner("", XDG_CONFIG_HOME=str(tmp_path))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tideq" / "contexts.json"


def test_a_service_is_remembered_and_talked_to(run: Run, url: str, file: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    answers = [
        run("context", "add", "nowhere", "--url", nowhere),
        run("context", "add", "real", "--url", url, "--api-key", "-", given=f"{KEY}\n"),
        run("queue", "stats", "--context", "real"),
        run("context", "use", "real"),
        run("queue", "stats"),
    ]

    assert [done.returncode for done in answers] == [0, 0, 0, 0, 0]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) & 0o077 == 0


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """The command without a process of its own, which takes longer than what it does."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("TIDEQ_URL", "TIDEQ_API_KEY", "TIDEQ_CONTEXT"):
        monkeypatch.delenv(name, raising=False)

    def ask(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            app(arguments, exit_on_error=False)
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return ask


def test_keys_are_kept_and_never_shown(ask: Ask, file: Path) -> None:
    ask("context", "add", "a", "--url", "http://a/", "--api-key", KEY)
    ask("context", "add", "b", "--url", "http://b", "--use")

    _, listed, _ = ask("context", "list", "-o", "jsonl")
    _, shown, _ = ask("context", "show", "a", "-o", "json")

    assert read_contexts(file).contexts["a"] == Context(url="http://a", api_key=KEY)
    told = [msgspec.json.decode(line) for line in listed.splitlines()]
    assert [(each["name"], each["is_current"], each["api_key"]) for each in told] == [
        ("a", False, "tq_0123456789ab_…"),
        ("b", True, None),
    ]
    assert "tq_0123456789ab_…" in shown
    assert not [part for part in ("secret", "ab_cd") if part in listed + shown]
    assert '"name": "b"' in ask("context", "show", "-o", "json")[1]


def test_what_is_asked_wrongly_ends_as_elsewhere(ask: Ask, file: Path) -> None:
    ask("context", "add", "a", "--url", "http://a")

    assert ask("context", "add", "a", "--url", "http://b")[0] == 2
    assert ask("context", "add", "a", "--url", "http://b", "--replace")[0] == 0
    assert ask("context", "add", "b", "--url", "tideq.example")[0] == 2
    assert ask("context", "add", "../b", "--url", "http://b")[0] == 2
    assert ask("context", "use", "c")[0] == 3
    assert ask("context", "show", "c")[0] == 3
    assert ask("context", "remove", "c")[0] == 3
    assert read_contexts(file) == Contexts(current="a", contexts={"a": Context(url="http://b")})
    file.write_text("{")
    code, _, complaint = ask("queue", "stats")
    assert (code, str(file) in complaint) == (2, True)


@pytest.mark.parametrize(
    ("options", "environ", "expected"),
    [
        ((None, None, None), {}, Target("http://home", "home-key", "context home")),
        ((None, "mine", None), {}, Target("http://home", "mine", "context home")),
        ((None, None, None), {"TIDEQ_API_KEY": "env"}, Target("http://home", "env", "context home")),
        ((None, None, "away"), {}, Target("http://away", "", "--context away")),
        ((None, None, None), {"TIDEQ_CONTEXT": "away"}, Target("http://away", "", "TIDEQ_CONTEXT")),
        ((None, None, "home"), {"TIDEQ_URL": "http://env", "TIDEQ_API_KEY": "env"},
         Target("http://home", "home-key", "--context home")),
        ((None, None, None), {"TIDEQ_URL": "http://env", "TIDEQ_CONTEXT": "away"},
         Target("http://env", None, "TIDEQ_URL")),
        (("http://flag", None, "away"), {"TIDEQ_URL": "http://env"}, Target("http://flag", None, "--url")),
    ],
)  # fmt: skip
def test_options_win_over_the_environment_and_both_over_the_context(
    options: tuple[str | None, str | None, str | None], environ: dict[str, str], expected: Target
) -> None:
    assert target(*options, environ, KNOWN) == expected


def test_a_contexts_key_goes_to_no_other_address() -> None:
    assert target("http://flag", None, None, {}, KNOWN).api_key is None
    assert target(None, None, None, {"TIDEQ_URL": "http://env"}, KNOWN).api_key is None


def test_without_any_there_is_the_default() -> None:
    assert target(None, None, None, {}, Contexts()) == Target(None, None, "default")
    with pytest.raises(UnknownContext, match="stored contexts: none"):
        target(None, None, "home", {}, Contexts())


def test_a_file_that_others_could_read_is_closed_to_them_when_written(file: Path) -> None:
    write_contexts(file, KNOWN)
    os.chmod(file, 0o644)

    write_contexts(file, KNOWN)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name]
