"""The identity under which a program runs: this user, another account, or a user namespace.

`postgres_identity` chooses one; nothing here checks that the identity can run a program.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int


@dataclass(frozen=True)
class Identity:
    label: str
    prefix: tuple[str, ...] = ()
    """A command put before the program that changes the identity and then executes the program."""
    account: Account | None = None
    """The user to switch to before the program runs."""


OURSELVES = Identity("the user running tideq")
