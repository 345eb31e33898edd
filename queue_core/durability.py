"""How sure a submission may ask to be before it is answered."""

from enum import StrEnum


class Durability(StrEnum):
    STORE = "store"
    """The store has it: survives a killed process, not a lost machine."""

    REPLICA = "replica"
    """A replica of the store has it too."""

    DISK = "disk"
    """The store has it on disk."""

    HISTORY = "history"
    """PostgreSQL has committed it."""
