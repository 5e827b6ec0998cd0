"""The findings of `lockstep doctor`: one line each, with what to do about it."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "bad"]


@dataclass(frozen=True)
class Finding:
    """The result of one check. `bad`: a run would fail; `warn`: it would be slow, or fail later."""

    subject: str
    verdict: Verdict
    what: str
    """What was found, in one line."""
    fix: str = ""
    """What to do about it; empty for `ok`."""


def ok(subject: str, what: str) -> Finding:
    """A finding that needs no action."""
    return Finding(subject, "ok", what)


def warn(subject: str, what: str, fix: str) -> Finding:
    """A finding that would make runs slow, or fail later."""
    return Finding(subject, "warn", what, fix)


def bad(subject: str, what: str, fix: str) -> Finding:
    """A finding that would make a run fail."""
    return Finding(subject, "bad", what, fix)
