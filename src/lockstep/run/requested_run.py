"""How a launcher passes the resolved run to its ranks. Nothing here needs torch.

A rank that parsed its arguments again, perhaps hours later at a restart, could find the --config file changed or gone.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

from lockstep.config.config import AnyConfig
from lockstep.config.sources import to_yaml
from lockstep.launch import environment
from lockstep.launch.rank_process import LAUNCHER_VARIABLE
from lockstep.run.starting_point import StepBack

VARIABLE = "LOCKSTEP_WANTED"


@dataclass(frozen=True)
class RequestedRun:
    """A run as the user asked for it."""

    asked: AnyConfig
    """As given by preset, file and flags."""
    config: AnyConfig
    """The same with sizes chosen for the device, if the user asked for that."""
    notes: tuple[str, ...] = ()
    """Lines to print about it."""
    step_back: StepBack | None = None
    """The earlier checkpoint to resume from, if the user chose one."""
    preset: str = ""
    """The preset it starts from; empty for a resumed run and for a branch."""

    def named(self, name: str) -> "RequestedRun":
        """A copy with a name for the run."""
        return replace(self, asked=self.asked.replace(run_name=name), config=self.config.replace(run_name=name))


@contextlib.contextmanager
def handed_over(wanted: RequestedRun) -> Iterator[None]:
    """Processes started within this context find the run in their environment; see `received`."""
    back = wanted.step_back
    content = {
        "asked": to_yaml(wanted.asked),
        "config": to_yaml(wanted.config),
        "notes": wanted.notes,
        "step_back": asdict(back) if back else None,
        "preset": wanted.preset,
    }
    os.environ[VARIABLE] = json.dumps(content)
    try:
        yield
    finally:
        del os.environ[VARIABLE]


def received(read: Callable[[str, str], AnyConfig]) -> RequestedRun | None:
    """What our launcher passed to this rank; None for a process that was started in another way.

    read: parses a configuration from a text and the name of its source.
    """
    # The variable may be inherited from another run, so it counts only in a process that our launcher started.
    text = os.environ.get(VARIABLE)
    if text is None or not environment.launched() or LAUNCHER_VARIABLE not in os.environ:
        return None
    content = json.loads(text)
    asked, config = (read(content[name], VARIABLE) for name in ("asked", "config"))
    back = content["step_back"]
    return RequestedRun(asked, config, tuple(content["notes"]), StepBack(**back) if back else None, content["preset"])
