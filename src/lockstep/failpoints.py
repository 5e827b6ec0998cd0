"""Failpoints: places in a run where a fault can be made to happen. Nothing ever happens unless LOCKSTEP_FAULTS is set.

    LOCKSTEP_FAULTS="kill@rank=2,at=7"                          rank 2 is killed before update 7
    LOCKSTEP_FAULTS="kill@rank=~0..3,at=~1..18,seed=5"          some rank, some update: both drawn from the seed
    LOCKSTEP_FAULTS="slow@rank=1,at=3..,seconds=0.2; nan@at=9"  several, and a range without an end
    LOCKSTEP_FAULTS="kill@place=publish,rank=0,at=2"            rank 0 dies when it is about to name its 2nd checkpoint

`at` counts visits of the place: updates done for `update`, from 1 for the others. A fault happens in the first attempt
of a run and not after its restart, unless `attempt` says otherwise (`attempt=0..`: always).
"""

import ctypes
import errno
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.errors import UserError
from lockstep.launch import environment

if TYPE_CHECKING:
    from torch import Tensor, nn

VARIABLE = "LOCKSTEP_FAULTS"
_STAGES = ("open", "write", "manifest", "publish", "published", "prune")
PLACES = ("update", *_STAGES, "best", "final", "resume", "disk", "logger")
"""update: before each update; open to prune: the stages of a checkpoint; best, final: before, when it is written and
when it has its name; resume: before and after a checkpoint is taken up, after config.yaml, after the cut of the log;
disk: before every write that is waited for; logger: a log point on its way out."""
_SELECTORS = ("rank", "at", "attempt", "place", "seconds", "seed")
_ALWAYS = range(2**62)


class Planted(RuntimeError):
    """The exception of the fault `raise`."""


def _hold_interpreter(seconds: float) -> None:
    # A call through PyDLL keeps Python's lock while it runs, as a stuck extension does.
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def _raise_planted(_: float) -> None:
    raise Planted("planted by a failpoint")


def _raise_out_of_memory(_: float) -> None:
    import torch

    raise torch.OutOfMemoryError("planted by a failpoint: tried to allocate more than there is")


def _raise_os_error(number: int) -> Callable[[float], None]:
    def act(_: float) -> None:
        raise OSError(number, os.strerror(number))

    return act


def _signal(name: str) -> Callable[[float], None]:
    return lambda _: os.kill(os.getpid(), getattr(signal, name))


_ACTS: dict[str, Callable[[float], None]] = {
    "kill": _signal("SIGKILL"),
    "stop": _signal("SIGSTOP"),
    "terminate": _signal("SIGTERM"),
    "interrupt": _signal("SIGINT"),
    "raise": _raise_planted,
    "leave": lambda _: os._exit(0),
    "hold": _hold_interpreter,
    "slow": time.sleep,
    "memory": _raise_out_of_memory,
    "full": _raise_os_error(errno.ENOSPC),
    "readonly": _raise_os_error(errno.EROFS),
}
_ON_WEIGHTS = ("nan", "diverge")
KINDS = (*_ACTS, *_ON_WEIGHTS)


@dataclass(frozen=True)
class Fault:
    """One fault, and where and when it happens."""

    kind: str
    place: str
    ranks: range
    at: range
    attempts: range
    seconds: float

    def hits(self, place: str, number: int) -> bool:
        """Whether it happens here and now, on this rank."""
        return (
            place == self.place
            and number in self.at
            and environment.launched_rank() in self.ranks
            and environment.restart_count() in self.attempts
        )


def parse(text: str) -> list[Fault]:
    """Read the faults of a description such as `kill@rank=2,at=7; nan@at=9`."""
    return [_parse_one(part.strip()) for part in text.split(";") if part.strip()]


def _parse_one(text: str) -> Fault:
    kind, _, rest = text.partition("@")
    words = dict(word.strip().partition("=")[::2] for word in rest.split(",") if word.strip())
    unknown = [name for name in words if name not in _SELECTORS]
    if kind not in KINDS or unknown or words.get("place", "update") not in PLACES:
        raise UserError(
            f"{VARIABLE}={text}: not a fault; kinds: {', '.join(KINDS)}; selectors: {', '.join(_SELECTORS)}; "
            f"places: {', '.join(PLACES)}"
        )
    words = {"rank": "0..", "at": "0..", "attempt": "0", "place": "update", "seconds": "3600", "seed": "0"} | words
    draw = random.Random(words["seed"])
    try:
        ranks, at, attempts = (_numbers(words[name], draw) for name in ("rank", "at", "attempt"))
        return Fault(kind, words["place"], ranks, at, attempts, float(words["seconds"]))
    except (ValueError, IndexError):
        raise UserError(f"{VARIABLE}={text}: numbers are 7, 3..9, 3.. or ~3..9 (one of them, by the seed)") from None


def _numbers(text: str, draw: random.Random) -> range:
    first, dots, last = text.removeprefix("~").partition("..")
    numbers = range(int(first), int(last) + 1 if last else (_ALWAYS.stop if dots else int(first) + 1))
    if not text.startswith("~"):
        return numbers
    one = draw.choice(numbers)
    return range(one, one + 1)


_faults = parse(os.environ.get(VARIABLE, ""))
_visits: Counter[str] = Counter()


def reach(place: str, number: int | None = None) -> None:
    """Let the faults of a place happen; `number` where the place does not count its visits by itself."""
    if not _faults:
        return
    _visits[place] += 1
    for fault in _faults:
        if fault.kind in _ACTS and fault.hits(place, _visits[place] if number is None else number):
            _ACTS[fault.kind](fault.seconds)


def reach_update(number: int, model: "nn.Module") -> None:
    """Let the faults before an update happen, those on its weights and gradients among them."""
    reach("update", number)
    for fault in _faults:
        if fault.kind in _ON_WEIGHTS and fault.hits("update", number):
            _spoil(fault.kind, next(model.parameters()))


def _spoil(kind: str, weights: "Tensor") -> None:
    if kind == "diverge":
        weights.data.add_(1.0)
        return

    def poison(gradient: "Tensor") -> "Tensor":
        handle.remove()
        return gradient * float("nan")

    handle = weights.register_hook(poison)
