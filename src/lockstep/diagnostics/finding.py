"""What a look at the machine found: one line each, with the cure where one is needed."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "bad"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `bad`: a run would fail; `warn`: it would be slow, or fail later."""

    subject: str
    verdict: Verdict
    what: str
    fix: str = ""


def ok(subject: str, what: str) -> Finding:
    """All is well."""
    return Finding(subject, "ok", what)


def warn(subject: str, what: str, fix: str) -> Finding:
    """It works, but not as well as it could."""
    return Finding(subject, "warn", what, fix)


def bad(subject: str, what: str, fix: str) -> Finding:
    """A run would fail."""
    return Finding(subject, "bad", what, fix)
