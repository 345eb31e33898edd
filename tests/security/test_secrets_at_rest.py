"""Where secrets lie and pass: files of one's own only, no arguments, and no complaint that quotes them."""

import subprocess
from contextlib import ExitStack
from pathlib import Path

from tests.api.running import TIDEQ, environ
from tests.security.guarded import Guarded
from tests.stores import free_port
from tideq.embedded.instance import LOCK_NAME, read_note

SECRET = "hunter2-and-more"
COMMANDS = ("serve --port 0", "monitor", "replicate", "migrate", "doctor")


def test_nobody_else_can_read_what_the_stores_keep(stores: Guarded) -> None:
    """The folder itself may be entered: PostgreSQL may be another user than Valkey."""
    inside = {path.name: path.lstat().st_mode for path in stores.folder.iterdir()}

    assert {"valkey", "postgres"} <= set(inside)
    assert stores.folder.stat().st_mode & 0o022 == 0
    assert {name for name, mode in inside.items() if mode & 0o077} <= {LOCK_NAME}, "which is empty"
    assert (stores.folder / LOCK_NAME).read_bytes() == b"" or (stores.folder / LOCK_NAME).stat().st_mode & 0o077 == 0


def test_no_store_is_told_a_secret_by_its_arguments(stores: Guarded) -> None:
    note = read_note(stores.folder)
    assert note is not None
    assert note.server_pids

    said = [Path(f"/proc/{pid}/cmdline").read_bytes().lower() for pid in note.server_pids]

    assert not [each for each in said if b"secret-of-" in each or b"requirepass" in each]


def test_stores_that_are_away_are_complained_of_without_their_passwords() -> None:
    away = f"tideq:{SECRET}@127.0.0.1:{free_port()}"
    settings = environ(f"redis://{away}/0", "default", DATABASE_URL=f"postgresql://{away}/tideq")
    settings |= {"TIDEQ_URL": f"http://127.0.0.1:{free_port()}", "TIDEQ_API_KEY": f"tq_{'0' * 12}_{SECRET:A<43}"}

    with ExitStack() as started:
        running = {command: started.enter_context(_started(settings, command)) for command in COMMANDS}
        said = {command: _first_complaint(process) for command, process in running.items()}

    assert [command for command, words in said.items() if not words.strip()] == []
    assert [command for command, words in said.items() if SECRET in words] == []


def _started(settings: dict[str, str], command: str) -> "subprocess.Popen[str]":
    words = [TIDEQ, *command.split()]
    return subprocess.Popen(words, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _first_complaint(running: "subprocess.Popen[str]") -> str:
    """Until it ends, or, where it waits for its stores, has said what is wrong."""
    assert running.stdout is not None
    lines = list[str]()
    for line in running.stdout:
        lines.append(line)
        if "error" in line or "cannot" in line:
            break
    running.kill()
    return "".join([*lines, running.stdout.read()])
