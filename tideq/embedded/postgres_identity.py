"""As whom PostgreSQL runs, given that it refuses root.

As an ordinary user: as ourselves. As root, the first of these that can enter the data folder and
run the binaries: root's own files seen from a user namespace in which root has another number (so
a 0700 home needs no chmod and no copies), then an ordinary account.

Does not change the mode or owner of anything, and promises nothing about accounts without a
passwd entry: initdb refuses them.
"""

import os
import pwd
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tideq.embedded.environment import ServerEnvironment
from tideq.embedded.errors import NoUsableAccount
from tideq.embedded.identity import OURSELVES, Account, Identity
from tideq.embedded.process import run_to_end


@dataclass(frozen=True)
class IdentitySearch:
    pgdata: Path
    bin_dir: Path
    unshare: str
    """The program that makes the user namespace."""

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
        """Data that exists has an owner already, and nobody else can run on it."""
        owner_uid = self.pgdata.stat().st_uid if has_cluster(self.pgdata) else None
        if not owner_uid:
            yield _namespace(shutil.which(self.unshare, path=path) or self.unshare)
        if owner_uid is None:
            yield from map(_account, self._ordinary_accounts())
        elif owner_uid:
            yield from map(_account, _entries_by_uid(owner_uid))

    def _ordinary_accounts(self) -> list[pwd.struct_passwd]:
        """Whoever owns the folders can enter them; after that, accounts made for servers."""
        owners = [self.pgdata.parent.stat().st_uid, self.bin_dir.stat().st_uid]
        entries = [entry for uid in owners if uid for entry in _entries_by_uid(uid)]
        entries += [entry for name in ("postgres", "nobody") for entry in _entries_by_name(name)]
        return list({entry.pw_uid: entry for entry in entries}.values())

    def _problem_with(self, identity: Identity, environment: ServerEnvironment) -> str:
        """Tried for real, because no reading of modes tells what a kernel or a container allows."""
        script = 'cd "$1" && exec "$2" --version'
        argv = ["/bin/sh", "-c", script, "tideq", str(self.pgdata.parent), str(self.bin_dir / "postgres")]
        answer = run_to_end(argv, environment, identity)
        return "" if answer.exit_code == 0 else answer.last_line


def has_cluster(pgdata: Path) -> bool:
    return (pgdata / "PG_VERSION").exists()


def _namespace(unshare: str) -> Identity:
    """Any number but 0 that has a name will do; it exists inside the namespace only."""
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
