"""The proof, visible: whether runs of one experiment hold the same weights, bit for bit, step by step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_ROWS = 8
"""Steps that are shown with their hashes: those around the place where runs part, else the newest."""
_DIGITS = 10


@dataclass(frozen=True)
class Member:
    """One run of an experiment."""

    name: str
    ranks: int
    hashes: Mapping[int, str]
    """The hash of its weights by step."""


@dataclass(frozen=True)
class Agreement:
    """How far the runs of an experiment hold the same bits."""

    members: tuple[str, ...]
    sentence: str
    compared: int
    """Steps at which all of them have a hash."""
    agreed_to: int | None
    """The last step up to which every comparison was equal; None if there was none."""
    parts_at: int | None
    """The first step whose hashes differ; None as long as all agree."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Steps with every run's hash, oldest first."""


def compare(members: Sequence[Member], sync: str) -> Agreement:
    """Compare runs at the steps that all of them have hashes of."""
    names = tuple(member.name for member in members)
    common = sorted(set.intersection(*(set(member.hashes) for member in members)))
    parts_at = next((step for step in common if len(_at(members, step)) > 1), None)
    same = [step for step in common if parts_at is None or step < parts_at]
    agreed_to = same[-1] if same else None
    # The step at which they part stands in the middle of what is shown.
    end = len(common) if parts_at is None else common.index(parts_at) + _ROWS // 2
    rows = [
        {
            "step": step,
            "same": len(_at(members, step)) == 1,
            "hashes": [member.hashes[step][:_DIGITS] for member in members],
        }
        for step in common[max(end - _ROWS, 0) : end]
    ]
    sentence = _sentence(members, sync, len(common), agreed_to, parts_at)
    return Agreement(names, sentence, len(common), agreed_to, parts_at, rows)


def _at(members: Sequence[Member], step: int) -> set[str]:
    return {member.hashes[step] for member in members}


def _sentence(members: Sequence[Member], sync: str, compared: int, agreed_to: int | None, parts_at: int | None) -> str:
    where = ranks_in_words([member.ranks for member in members])
    if not compared:
        return f"No step in common yet on {where}"
    if parts_at is None:
        return f"Same bits on {where} up to step {agreed_to:,}"
    before = f"Same bits up to step {agreed_to:,}, different" if agreed_to is not None else "Different"
    why = "; --sync fast promises equality up to rounding only" if sync == "fast" else ""
    return f"{before} bits on {where} from step {parts_at:,}{why}"


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Numbers of ranks as a list: 1, 2 and 4 ranks; of equal ones the number of runs."""
    numbers = sorted(set(ranks))
    if len(numbers) == 1:
        return f"{len(ranks)} runs of {numbers[0]} rank{'s' if numbers[0] != 1 else ''}"
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]} ranks"
