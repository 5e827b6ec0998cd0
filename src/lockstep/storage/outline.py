"""The outline of a checkpoint (names, shapes, dtypes, keys), compared with what its learner would write.

A hash only shows that a file matches its manifest, and anybody can write a manifest. The outline shows that the state
belongs to this learner and not to another one. It is checked before any tensor is read.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.config.values import shown
from lockstep.storage.manifest import MODEL, OPTIMIZER, Manifest, lane_file, open_listed
from lockstep.storage.tensor_file import TensorSpec, plain_names, read_header, specs_of
from lockstep.untrusted import LARGEST_FLOAT, is_counter, is_number

if TYPE_CHECKING:
    from lockstep.storage.checkpoint import Snapshot

_LONGEST_TEXT = 1000
"""Characters of a text in state.json; no learner comes near it."""
AFTER_UPDATE = "after_update"
"""The note of a loop that was stopped after an update, before its evaluation was done: what is left to do."""
_WHOLE = (MODEL, OPTIMIZER)  # Files that belong to no lane.


@dataclass(frozen=True)
class Misfit:
    """One difference between a checkpoint and what its learner would write."""

    problem: str
    by_settings: bool
    """Whether different settings can explain it; otherwise the file is damaged or of something else."""
    lane_lacks: bool = False
    """Whether a tensor is missing in a lane's state: if no setting explains it, an earlier version wrote none."""


def find_misfit(path: Path, manifest: Manifest, like: "Snapshot") -> Misfit | None:
    """The most serious difference between a checkpoint's tensors and those of `like`, in the lanes that `like` has."""
    expected = {MODEL: like.model, OPTIMIZER: like.optimizer}
    expected |= {lane_file(lane): tensors for lane, tensors in like.lanes.items()}
    found: list[Misfit] = []
    for name, tensors in expected.items():
        # Optimizer moments have the shapes of the weights: if the weights fit, no setting can make the moments differ.
        exactly = name == OPTIMIZER and not found
        with open_listed(path, name, manifest.files[name]) as file:
            forms = plain_names(read_header(file)[0])
        found += [
            replace(misfit, problem=f"{name}: {misfit.problem}", lane_lacks=misfit.lane_lacks and name not in _WHOLE)
            for misfit in _differences(forms, specs_of(plain_names(tensors)), exactly)
        ]
    # False sorts first: a difference that no setting explains is the more serious one.
    return min(found, key=lambda misfit: misfit.by_settings, default=None)


def _differences(
    stored: Mapping[str, TensorSpec], expected: Mapping[str, TensorSpec], exactly: bool
) -> Iterator[Misfit]:
    """`exactly`: shapes and dtypes follow from the network, so no setting can explain a difference."""
    if stored and expected and not stored.keys() & expected.keys():
        yield Misfit(f"holds {shown(min(stored))} and others, none of the expected tensors", by_settings=False)
        return
    for name in sorted(stored.keys() | expected.keys()):
        have, want = stored.get(name), expected.get(name)
        if have is None or want is None:
            fault = "missing" if have is None else "not expected"
            yield Misfit(f"tensor {shown(name)} is {fault}", by_settings=True, lane_lacks=have is None)
        elif have != want:
            # Settings change sizes and precisions, but not the number of axes, nor floats into integers or flags.
            same_kind = len(have.shape) == len(want.shape) and _kind(have) == _kind(want)
            yield Misfit(f"tensor {shown(name)} is {have}, and {want} in this run", same_kind and not exactly)


def _kind(form: TensorSpec) -> tuple[bool, bool]:
    # One byte: flags, and observations stored as uint8.
    return form.dtype.is_floating_point, form.dtype.itemsize == 1


def state_problem(state: Any, like: Any, where: str = "state.json") -> str:
    """How a state that was read differs from one like `like`, in keys, types or ranges; empty if it does not."""
    if isinstance(like, dict):
        if not isinstance(state, dict):
            return f"{where}: not an object"
        # A missing text is accepted: early checkpoints have none.
        lacking = [key for key in like if key not in state and not isinstance(like[key], str)]
        unknown = [key for key in state if key not in like]
        if lacking or unknown:
            return f"{where}: {shown((lacking or unknown)[0])} is {'missing' if lacking else 'unknown'}"
        return next(filter(None, (state_problem(state[key], like[key], f"{where}: {key}") for key in state)), "")
    # By the type of what the learner would write: None stands for a number that is not known yet.
    valid = {
        bool: type(state) is bool,
        int: is_counter(state),
        float: is_number(state, LARGEST_FLOAT),
        str: isinstance(state, str) and len(state) <= _LONGEST_TEXT,
        type(None): state is None or is_number(state, LARGEST_FLOAT),
    }[type(like)]
    return "" if valid else f"{where} is {shown(state)}, which no run can have"


def notes_problem(notes: Any) -> str:
    """The same for the state of the training loop."""
    if isinstance(notes, dict) and AFTER_UPDATE in notes:
        left = notes[AFTER_UPDATE]
        reports = left.get("reports") if isinstance(left, dict) else None
        if not isinstance(reports, dict) or not all(map(_is_stat, reports.values())):
            return f"state.json: loop: {AFTER_UPDATE} has no reports of an update"
        like = {"before": 0, "evaluates": False, "reviewed": False, "reports": {}}
        if problem := state_problem({**left, "reports": {}}, like, f"state.json: loop: {AFTER_UPDATE}"):
            return problem
        notes = {name: value for name, value in notes.items() if name != AFTER_UPDATE}
    # The best score is minus infinity before the first evaluation; no other number may be infinite.
    if isinstance(notes, dict) and isinstance(notes.get("best"), float) and math.isinf(notes["best"]):
        notes = {**notes, "best": 0.0}
    return state_problem(notes, {"best": 0.0, "seconds": 0.0}, "state.json: loop")


def _is_stat(value: Any) -> bool:
    # Sum, count, minimum and maximum. A loss may have been infinite or NaN.
    return isinstance(value, list) and len(value) == 4 and all(type(number) in (int, float) for number in value)
