"""Durability levels: how safely a submission is stored before it is answered."""

from enum import StrEnum


class Durability(StrEnum):
    STORE = "store"
    """In the store's memory: survives a killed API process, not a lost store machine."""

    REPLICA = "replica"
    """Also on a replica of the store."""

    DISK = "disk"
    """Also in the store's append-only file on disk."""

    HISTORY = "history"
    """Committed to PostgreSQL."""
