"""What a check found, and what to do about it."""

from typing import Literal

import msgspec

Status = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True):
    check: str
    status: Status
    found: str
    advice: str | None = None


def ok(check: str, found: str) -> Finding:
    return Finding(check, "ok", found)


def warn(check: str, found: str, advice: str) -> Finding:
    """Works, and will surprise somebody."""
    return Finding(check, "warn", found, advice)


def fail(check: str, found: str, advice: str) -> Finding:
    """Does not work, or loses something."""
    return Finding(check, "fail", found, advice)
