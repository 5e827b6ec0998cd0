"""Failpoints: places in a run where faults can be injected. They do nothing unless LOCKSTEP_FAULTS is set.

    LOCKSTEP_FAULTS="kill@rank=2,at=7"                          rank 2 is killed before update 7
    LOCKSTEP_FAULTS="kill@rank=~0..3,at=~1..18,seed=5"          a random rank and update, both drawn from the seed
    LOCKSTEP_FAULTS="slow@rank=1,at=3..,seconds=0.2; nan@at=9"  several faults, and an open range
    LOCKSTEP_FAULTS="kill@place=publish,rank=0,at=2"            rank 0 is killed before publishing its 2nd checkpoint

`at` counts visits of the place: completed updates for `update`, from 1 for the others. A fault happens in the first
attempt of a run and not after a restart, unless `attempt` says otherwise (`attempt=0..`: always).
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
"""update: before each update; open to prune: the stages of a checkpoint; best, final: before they are written, after
that, and after they have their name; resume: before and after a checkpoint is loaded, after config.yaml is written,
after the log is truncated; disk: before every write that is flushed; logger: before a log point is written."""
_SELECTORS = ("rank", "at", "attempt", "place", "seconds", "seed")
_ALWAYS = range(2**62)
"""An open range; no counter gets there."""


class Planted(RuntimeError):
    """The exception that the fault `raise` raises."""


def _hold_interpreter(seconds: float) -> None:
    # PyDLL does not release the GIL during the call, like a hung C extension.
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def _raise_planted(_: float) -> None:
    raise Planted("planted by a failpoint")


def _raise_out_of_memory(_: float) -> None:
    import torch  # Late: the launcher imports this module and must not import torch.

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
    # As a rank that ends too early without an error: no exception, exit code 0.
    "leave": lambda _: os._exit(0),
    "hold": _hold_interpreter,
    "slow": time.sleep,
    "memory": _raise_out_of_memory,
    "full": _raise_os_error(errno.ENOSPC),
    "readonly": _raise_os_error(errno.EROFS),
}
"""What a fault does; the argument is its `seconds`."""
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
        """Whether it happens at this visit of a place, on this rank."""
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
    selectors = dict(part.strip().partition("=")[::2] for part in rest.split(",") if part.strip())
    unknown = [name for name in selectors if name not in _SELECTORS]
    if kind not in KINDS or unknown or selectors.get("place", "update") not in PLACES:
        raise UserError(
            f"{VARIABLE}={text}: not a fault; kinds: {', '.join(KINDS)}; selectors: {', '.join(_SELECTORS)}; "
            f"places: {', '.join(PLACES)}"
        )
    defaults = {"rank": "0..", "at": "0..", "attempt": "0", "place": "update", "seconds": "3600", "seed": "0"}
    selectors = defaults | selectors
    # Seeded, so every rank draws the same numbers and agrees on which rank fails.
    draw = random.Random(selectors["seed"])
    try:
        ranks, at, attempts = (_numbers(selectors[name], draw) for name in ("rank", "at", "attempt"))
        return Fault(kind, selectors["place"], ranks, at, attempts, float(selectors["seconds"]))
    except (ValueError, IndexError):
        raise UserError(
            f"{VARIABLE}={text}: numbers are 7, 3..9, 3.. or ~3..9 (one of these, drawn from the seed)"
        ) from None


def _numbers(text: str, draw: random.Random) -> range:
    first, dots, last = text.removeprefix("~").partition("..")
    numbers = range(int(first), int(last) + 1 if last else (_ALWAYS.stop if dots else int(first) + 1))
    if not text.startswith("~"):
        return numbers
    drawn = draw.choice(numbers)
    return range(drawn, drawn + 1)


# Parsed at import, so that a failpoint costs a run without faults one comparison.
_faults = parse(os.environ.get(VARIABLE, ""))
_visits: Counter[str] = Counter()


def reach(place: str, number: int | None = None) -> None:
    """Trigger the faults of a place; `number` replaces the count of visits, for `update`."""
    if not _faults:
        return
    _visits[place] += 1
    # Counted on every visit, also without a hit, so that `at` means the same for every fault.
    for fault in _faults:
        if fault.kind in _ACTS and fault.hits(place, _visits[place] if number is None else number):
            _ACTS[fault.kind](fault.seconds)


def reach_update(number: int, model: "nn.Module") -> None:
    """Trigger the faults before an update, including those on weights and gradients."""
    reach("update", number)
    for fault in _faults:
        if fault.kind in _ON_WEIGHTS and fault.hits("update", number):
            _spoil(fault.kind, next(model.parameters()))


def _spoil(kind: str, weights: "Tensor") -> None:
    if kind == "diverge":
        # On the ranks selected only, so that the replicas differ and the check of their hashes must find it.
        weights.data.add_(1.0)
        return

    def poison(gradient: "Tensor") -> "Tensor":
        # One gradient only: the run must recover in the next update.
        handle.remove()
        return gradient * float("nan")

    handle = weights.register_hook(poison)
