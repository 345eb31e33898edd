"""As whom a program runs.

Does not choose (see `postgres_identity`) and does not check that the identity may run anything.
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
    """Put before the program: a command that changes who it is, then runs it in its own process."""
    account: Account | None = None
    """The user to become before anything runs."""


OURSELVES = Identity("the user running tideq")
