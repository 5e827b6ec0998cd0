"""status.json: what a run says of itself while it trains. Nothing here needs torch."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from lockstep.untrusted import LARGEST_FLOAT, LATEST, is_counter, is_number

State = Literal["running", "finished", "stopped"]
Scalar = str | int | float | bool | None
# No control characters: these are printed in a terminal and shown on pages.
_WORKLOAD = re.compile(r"[\w.:/-]{0,200}")
_WORD = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
_LONGEST_TEXT = 1024
_MOST_SETTINGS = 500


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a run is told when it starts, as far as a list of runs shows it."""

    preset: str = ""
    """The preset it started from; empty for a branch, and where it is not known."""
    changed: dict[str, Scalar] = field(default_factory=dict)
    """The settings that differ from the preset's, with their values."""
    ranks: int = 0
    """Ranks that train it, or trained it last; 0 = not known."""
    sync: str = ""
    """How they are kept equal, fast or exact; empty = not known."""
    total_steps: int = 0
    """Steps after which it is complete; 0 = not known."""
    score_name: str = ""
    """What its models are measured by, such as `return_mean`; the metric is `eval/` and this name."""
    lower_is_better: bool = False
    """Whether a lower value of that is better."""


@dataclass(frozen=True)
class Status:
    """A run's progress, as stored in status.json."""

    workload: str = ""
    state: State = "stopped"
    step: int = 0
    best_score: float | None = None
    """The best evaluation so far, where higher is always better: a loss is negated."""
    updated: float = 0.0
    """Seconds since 1970."""
    seconds: float = 0.0
    """How long it has run, over all restarts."""
    facts: RunFacts = field(default_factory=RunFacts)


def read_status(content: Any) -> Status:
    """The status in a parsed file; ValueError if it is not one."""
    match content:
        case {
            "workload": str(workload),
            "state": ("running" | "finished" | "stopped") as state,
            "step": step,
            "best_score": best,
            "updated": updated,
            **more,
        } if is_counter(step) and _is_time(updated) and (best is None or is_number(best, LARGEST_FLOAT)):
            if _WORKLOAD.fullmatch(workload):
                score, seconds = None if best is None else float(best), _seconds(more.get("seconds"))
                return Status(workload, state, step, score, float(updated), seconds, _facts(more.get("facts")))
    raise ValueError("not a status")


def _seconds(value: Any) -> float:
    return float(value) if _is_time(value) else 0.0


def _is_time(value: Any) -> bool:
    return is_number(value, LATEST) and value >= 0


def _facts(content: Any) -> RunFacts:
    """The facts in a parsed file; what is missing, as in earlier versions, or odd is left at its default."""
    content = content if isinstance(content, dict) else {}
    changed = content.get("changed")
    return RunFacts(
        preset=_word(content.get("preset")),
        changed=_settings(changed) if isinstance(changed, dict) else {},
        ranks=_count(content.get("ranks")),
        sync=_word(content.get("sync")),
        total_steps=_count(content.get("total_steps")),
        score_name=_word(content.get("score_name")),
        lower_is_better=content.get("lower_is_better") is True,
    )


def _count(value: Any) -> int:
    return value if is_counter(value) else 0


def _word(value: Any) -> str:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def _settings(changed: dict[str, Any]) -> dict[str, Scalar]:
    pairs = list(changed.items())[:_MOST_SETTINGS]
    return {name: value for name, value in pairs if _WORD.fullmatch(name) and _is_scalar(value)}


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_TEXT and value.isprintable()
    # Integers of a thousand digits would take the time and the room of a page each.
    return value is None or (isinstance(value, int | float) and abs(value) < 2**63)
