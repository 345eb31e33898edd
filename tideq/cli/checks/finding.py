"""The result of a check, and what to do about it."""

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
    """A check that works, and may surprise an operator."""
    return Finding(check, "warn", found, advice)


def fail(check: str, found: str, advice: str) -> Finding:
    """A check that does not work, or may lose tasks or data."""
    return Finding(check, "fail", found, advice)
