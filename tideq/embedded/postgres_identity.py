"""Chooses the identity under which PostgreSQL runs, because PostgreSQL refuses root.

An ordinary user runs it under the own account. For root, the first identity that can enter the data folder and run the
binaries is used: root inside a user namespace that maps root to another number (a 0700 home then needs no chmod and no
copies), then an ordinary account.

Changes no mode and no owner. Accounts without a passwd entry do not work: initdb refuses them.
"""

import os
import pwd
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tideq.embedded.embedded_errors import NoUsableAccount
from tideq.embedded.environment import ServerEnvironment
from tideq.embedded.identity import OURSELVES, Account, Identity
from tideq.embedded.process import run_to_end


@dataclass(frozen=True)
class IdentitySearch:
    pgdata: Path
    bin_dir: Path
    unshare: str
    """The program that creates the user namespace."""

    def choose(self, environment: ServerEnvironment) -> Identity:
        if os.geteuid() != 0:
            return OURSELVES
        tried: list[str] = []
        for identity in self._candidates(environment.environ.get("PATH", "")):
            problem = self._problem_with(identity, environment)
            if not problem:
                return identity
            tried.append(f"{identity.label}: {problem}")
        raise NoUsableAccount(tried, self.pgdata, self.bin_dir)

    def _candidates(self, path: str) -> Iterator[Identity]:
        """Existing data has an owner, and PostgreSQL runs only as that owner."""
        owner_uid = self.pgdata.stat().st_uid if has_cluster(self.pgdata) else None
        if not owner_uid:
            yield _namespace(shutil.which(self.unshare, path=path) or self.unshare)
        if owner_uid is None:
            yield from map(_account, self._ordinary_accounts())
        elif owner_uid:
            yield from map(_account, _entries_by_uid(owner_uid))

    def _ordinary_accounts(self) -> list[pwd.struct_passwd]:
        """First the owners of the folders, who can enter them; then accounts created for servers."""
        owners = [self.pgdata.parent.stat().st_uid, self.bin_dir.stat().st_uid]
        entries = [entry for uid in owners if uid for entry in _entries_by_uid(uid)]
        entries += [entry for name in ("postgres", "nobody") for entry in _entries_by_name(name)]
        return list({entry.pw_uid: entry for entry in entries}.values())

    def _problem_with(self, identity: Identity, environment: ServerEnvironment) -> str:
        """Runs the program as a test, because file modes do not show what a kernel or a container allows."""
        script = 'cd "$1" && exec "$2" --version'
        argv = ["/bin/sh", "-c", script, "tideq", str(self.pgdata.parent), str(self.bin_dir / "postgres")]
        answer = run_to_end(argv, environment, identity)
        return "" if answer.exit_code == 0 else answer.last_line


def has_cluster(pgdata: Path) -> bool:
    return (pgdata / "PG_VERSION").exists()


def _namespace(unshare: str) -> Identity:
    """Maps root to a named account other than root; the mapping exists only inside the namespace."""
    entry = next(iter([*_entries_by_name("nobody"), *_entries_by_name("postgres")]), None)
    uid = entry.pw_uid if entry else 65534
    return Identity("root in a user namespace", prefix=(unshare, "--user", f"--map-user={uid}", "--"))


def _account(entry: pwd.struct_passwd) -> Identity:
    return Identity(f"the user {entry.pw_name}", account=Account(entry.pw_uid, entry.pw_gid))


def _entries_by_uid(uid: int) -> list[pwd.struct_passwd]:
    try:
        return [pwd.getpwuid(uid)]
    except KeyError:
        return []


def _entries_by_name(name: str) -> list[pwd.struct_passwd]:
    try:
        return [pwd.getpwnam(name)]
    except KeyError:
        return []
