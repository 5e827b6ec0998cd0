"""The proof, visible: whether runs of one experiment hold the same weights, bit for bit, step by step."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.reporting.same_weights import Comparison

_ROWS = 8
"""Steps that are shown with their hashes: those around the place where runs part, else the newest."""
_DIGITS = 10


@dataclass(frozen=True)
class Member:
    """One run of an experiment."""

    name: str
    ranks: int
    hashes: dict[int, str]
    """The hash of its weights by step, in the order of steps."""


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


class AgreementFollower:
    """Compares the runs of one experiment as they grow; every step is looked at once."""

    def __init__(self) -> None:
        self._found = Comparison()
        self._seen_to = -1
        self._rows: list[dict[str, Any]] = []
        self._rows_after = 0

    def look(self, members: Sequence[Member], sync: str) -> Agreement:
        """Compare at the steps that have come since the last look; always the same runs, each with a hash at least."""
        self._read_on(members)
        names, found = tuple(member.name for member in members), self._found
        sentence = _sentence(members, sync, found)
        return Agreement(names, sentence, found.steps, found.agreed_to, found.parted_at, [*self._rows])

    def _read_on(self, members: Sequence[Member]) -> None:
        # The run that is furthest behind decides how far all of them can be compared. Steps only grow, so nothing can
        # be added later to any of them up to its newest one.
        behind = min(members, key=lambda member: next(reversed(member.hashes)))
        new = list(itertools.takewhile(lambda step: step > self._seen_to, reversed(behind.hashes)))
        for step in reversed(new):
            if all(step in member.hashes for member in members):
                self._add(step, [member.hashes[step] for member in members])
        self._seen_to = next(reversed(behind.hashes))

    def _add(self, step: int, hashes: list[str]) -> None:
        same = len(set(hashes)) == 1
        self._found.add(step, same=same)
        # The step at which they part stands in the middle of what is shown.
        self._rows_after += self._found.parted_at is not None
        if self._rows_after <= _ROWS // 2:
            row = {"step": step, "same": same, "hashes": [text[:_DIGITS] for text in hashes]}
            self._rows = [*self._rows, row][-_ROWS:]


def _sentence(members: Sequence[Member], sync: str, found: Comparison) -> str:
    where = ranks_in_words([member.ranks for member in members])
    if not found.steps:
        return f"No step in common yet on {where}"
    if found.parted_at is None:
        return f"Same bits on {where} up to step {found.agreed_to:,}"
    before = f"Same bits up to step {found.agreed_to:,}, different" if found.agreed_to is not None else "Different"
    why = "; --sync fast promises equality up to rounding only" if sync == "fast" else ""
    return f"{before} bits on {where} from step {found.parted_at:,}{why}"


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Numbers of ranks as a list: 1, 2 and 4 ranks; of equal ones the number of runs."""
    numbers = sorted(set(ranks))
    if len(numbers) == 1:
        return f"{len(ranks)} runs of {numbers[0]} rank{'s' if numbers[0] != 1 else ''}"
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]} ranks"
