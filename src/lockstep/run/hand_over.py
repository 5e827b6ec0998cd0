"""What a launcher hands its ranks: the run as it was resolved, once. Nothing here needs torch.

A rank that read its words again, at a restart perhaps hours later, could find another --config file than the launcher
did, or none.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lockstep.config.run_config import RunConfig
from lockstep.config.sources import from_yaml, to_yaml
from lockstep.launch import environment
from lockstep.launch.rank_process import LAUNCHER_VARIABLE

VARIABLE = "LOCKSTEP_WANTED"


@dataclass(frozen=True)
class Wanted:
    """A run as the user wants it."""

    asked: RunConfig
    """What was given: preset, file and flags."""
    config: RunConfig
    """That, with sizes chosen by the device where it asks for it."""
    notes: tuple[str, ...] = ()
    """What the user is told about it."""

    def named(self, name: str) -> "Wanted":
        """The same with a name for the run."""
        return replace(self, asked=replace(self.asked, run_name=name), config=replace(self.config, run_name=name))


@contextlib.contextmanager
def handed_over(wanted: Wanted) -> Iterator[None]:
    """Within, processes that are started find it in their environment."""
    content = {"asked": to_yaml(wanted.asked), "config": to_yaml(wanted.config), "notes": wanted.notes}
    os.environ[VARIABLE] = json.dumps(content)
    try:
        yield
    finally:
        del os.environ[VARIABLE]


def received(config_class: type[RunConfig]) -> Wanted | None:
    """What our launcher handed this rank; None for a process that was started in another way."""
    text = os.environ.get(VARIABLE)
    if text is None or not environment.launched() or LAUNCHER_VARIABLE not in os.environ:
        return None
    content = json.loads(text)
    asked, config = (from_yaml(content[name], config_class, VARIABLE) for name in ("asked", "config"))
    return Wanted(asked, config, tuple(content["notes"]))
