"""What a checkpoint must look like: compared with what its learner would write, before a tensor of it is read.

A hash shows that a file is what somebody sealed, and anybody can seal. Names, shapes, types and keys show that it is
the state of this learner and not of another one.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.config.values import shown
from lockstep.storage.manifest import MODEL, OPTIMIZER, Manifest, lane_file, open_listed
from lockstep.storage.tensor_file import Form, forms_of, plain_names, read_header
from lockstep.untrusted import is_counter

if TYPE_CHECKING:
    from lockstep.storage.checkpoint import Snapshot

_LONGEST_TEXT = 1000
_LARGEST = 1e300


@dataclass(frozen=True)
class Misfit:
    """One difference between a checkpoint and what its learner would write."""

    problem: str
    by_settings: bool
    """Whether settings that differ from those it was made with can be the reason."""


def find_misfit(path: Path, manifest: Manifest, like: "Snapshot") -> Misfit | None:
    """The gravest difference between a checkpoint's tensors and those of `like`; no lanes but its own are looked at."""
    wanted = {MODEL: like.model, OPTIMIZER: like.optimizer}
    wanted |= {lane_file(lane): tensors for lane, tensors in like.lanes.items()}
    found: list[Misfit] = []
    for name, tensors in wanted.items():
        # Moments have the shapes of the weights: where those fit, no setting can have given moments others.
        exactly = name == OPTIMIZER and not found
        with open_listed(path, name, manifest.files[name]) as file:
            forms = plain_names(read_header(file)[0])
        found += [
            Misfit(f"{name}: {misfit.problem}", misfit.by_settings)
            for misfit in _differences(forms, forms_of(plain_names(tensors)), exactly)
        ]
    return min(found, key=lambda misfit: misfit.by_settings, default=None)


def _differences(there: Mapping[str, Form], here: Mapping[str, Form], exactly: bool) -> Iterator[Misfit]:
    """`exactly`: shapes and types follow from the network, so that no other setting can have changed them."""
    if there and here and not there.keys() & here.keys():
        yield Misfit(f"holds {shown(min(there))} and others, nothing of what belongs there", by_settings=False)
        return
    for name in sorted(there.keys() | here.keys()):
        have, want = there.get(name), here.get(name)
        if have is None or want is None:
            yield Misfit(f"tensor {shown(name)} is {'missing' if have is None else 'of something else'}", True)
        elif have != want:
            same_kind = len(have.shape) == len(want.shape) and _kind(have) == _kind(want)
            yield Misfit(f"tensor {shown(name)} is {have}, and {want} in this run", same_kind and not exactly)


def _kind(form: Form) -> tuple[bool, bool]:
    return form.dtype.is_floating_point, form.dtype.itemsize == 1


def state_problem(state: Any, like: Any, where: str = "state.json") -> str:
    """What keeps a state that was read from being one like that: a key, a type, a number; empty where nothing does."""
    if isinstance(like, dict):
        if not isinstance(state, dict):
            return f"{where}: not an object"
        # Texts came later than checkpoints: one without them is an early one.
        lacking = [key for key in like if key not in state and not isinstance(like[key], str)]
        unknown = [key for key in state if key not in like]
        if lacking or unknown:
            return f"{where}: {shown((lacking or unknown)[0])} is {'missing' if lacking else 'unknown'}"
        return next(filter(None, (state_problem(state[key], like[key], f"{where}: {key}") for key in state)), "")
    good = {
        bool: type(state) is bool,
        int: is_counter(state),
        float: _is_number(state),
        str: isinstance(state, str) and len(state) <= _LONGEST_TEXT,
        type(None): state is None or _is_number(state),
    }[type(like)]
    return "" if good else f"{where} is {shown(state)}, which no run can have"


def notes_problem(notes: Any) -> str:
    """The same for what the loop remembers; the best score is below all others before there is one."""
    if isinstance(notes, dict) and isinstance(notes.get("best"), float) and math.isinf(notes["best"]):
        notes = {**notes, "best": 0.0}
    return state_problem(notes, {"best": 0.0, "seconds": 0.0}, "state.json: loop")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -_LARGEST < value < _LARGEST
