"""Workloads are found by looking: a folder beside this file with a `workload.py` is one. Nothing here needs torch."""

import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep.config.fields import nearest
from lockstep.config.run_config import RunConfig
from lockstep.config.values import shown
from lockstep.errors import UserError

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Workload:
    """What a workload's `workload.py` says about it: it must build a learner, and may do more."""

    name: str
    module: ModuleType

    @property
    def summary(self) -> str:
        """The workload in a few words."""
        return self.module.summary

    @property
    def config_class(self) -> type[RunConfig]:
        """The class of its configurations."""
        return self.module.config_class

    @property
    def presets(self) -> Mapping[str, Callable[[], Any]]:
        """Its named configurations."""
        return self.module.PRESETS

    @property
    def predicts(self) -> bool:
        """Whether it predicts from data, and is measured by its predictions instead of by episodes."""
        return hasattr(self.module, "assess")

    def preset(self, name: str = "base") -> Any:
        """Make the whole configuration that a preset stands for."""
        return self.presets[_known(name, list(self.presets), f"preset of {self.name}")]()

    def build(self, config: Any, world: Any) -> Any:
        """Build the learner for a configuration on this rank. Called by every rank."""
        return self.module.build(config, world)

    def fit(self, config: Any, explicit: Collection[str]) -> tuple[Any, list[str]]:
        """Choose sizes by the device where the configuration asks for it; also what was chosen, a line each."""
        return self.module.fit(config, explicit) if hasattr(self.module, "fit") else (config, [])

    def check_kept(self, config: Any, model: Path) -> None:
        """See that what a stored model needs besides its weights is still there; UserError where it is not."""
        if hasattr(self.module, "check_kept"):
            self.module.check_kept(config, model)

    def narrator(self, config: Any, world: Any) -> Any:
        """Make what tells the progress of a run in the workload's own lines; None where it has none."""
        return self.module.narrator(config, world) if hasattr(self.module, "narrator") else None

    def offer(self, what: str) -> Any:
        """Something that only some workloads have, by its name in `workload.py`: UserError where this one has not."""
        if not hasattr(self.module, what):
            having = ", ".join(name for name in names() if hasattr(load(name).module, what))
            raise UserError(
                f"{self.name}: cannot {what.lower().replace('_', ' ')}; workloads that can: {having or 'none'}"
            )
        return getattr(self.module, what)


def names() -> list[str]:
    """List every workload there is."""
    return sorted(folder.name for folder in _FOLDER.iterdir() if (folder / "workload.py").is_file())


def load(name: str) -> Workload:
    """Load the workload of that name."""
    name = _known(name, names(), "workload")
    module = importlib.import_module(f"lockstep.workloads.{name}.workload")
    return Workload(name, module)


def register_environments() -> None:
    """Make the environments of every workload known to Gymnasium, by name: nothing of theirs is imported yet."""
    import gymnasium

    for name in names():
        module = importlib.import_module(f"lockstep.workloads.{name}.workload")
        for env_id, (single, vector) in getattr(module, "ENVIRONMENTS", {}).items():
            if env_id not in gymnasium.registry:
                gymnasium.register(env_id, entry_point=single, vector_entry_point=vector)


def _known(name: str, known: list[str], what: str) -> str:
    """Spell the name as it is spelled here; `-` and `_` are the same."""
    spelled = name.replace("-", "_")
    if spelled in known:
        return spelled
    near = nearest(spelled, known)
    hint = f"the nearest is {near}; " if near else ""
    raise UserError(f"{shown(name)}: unknown {what}; {hint}known: {', '.join(known)}")
