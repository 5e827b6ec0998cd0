"""Going on: the newest checkpoint that verifies and that this learner could have written. Called by every rank."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.config.run_config import RunConfig
from lockstep.config.sources import from_yaml
from lockstep.config.values import shown
from lockstep.distributed.world import World
from lockstep.errors import LockstepError, NoValidCheckpoint, UserError, error_of
from lockstep.launch.failures import tells_of_memory
from lockstep.run.learner import Learner
from lockstep.storage import checkpoint, checkpoint_retention
from lockstep.storage.manifest import Damaged, Manifest
from lockstep.storage.outline import find_misfit, notes_problem, state_problem
from lockstep.storage.run_directory import RunDirectory

MADE_WITH = "config"
"""Where a manifest keeps the configuration that its checkpoint was made with."""
_UNFIT = (RuntimeError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError)
"""What a learner may raise for a state that is none of its own."""


@dataclass
class Resumption:
    """One run's search for the state to go on from."""

    run: RunDirectory
    workload: str
    config: RunConfig
    world: World
    learner: Learner
    say: Callable[[str], None]
    _refused: dict[str, str] = field(default_factory=dict)
    """What was wrong with checkpoints that verified, by name."""
    _said: set[str] = field(default_factory=set)
    _counters: dict[str, Any] = field(default_factory=dict)
    """What the learner keeps in state.json, as it is at the start."""

    def take_up(self) -> tuple[Path, dict[str, float]] | None:
        """Give the learner its newest good state; returns where that lay and the loop's notes, or None for no state."""
        # Asked of all ranks at once: where parts of a learner are made when they are needed, they are made together.
        self._counters = self.learner.state().state
        while (path := self._newest()) is not None:
            notes: dict[str, float] = {}
            problem = self._agreed(self._problem, path) or self._agreed(self._load, path, notes)
            if not problem:
                return path, notes
            self._refused[path.name] = problem
        return None

    def _newest(self) -> Path | None:
        """Rank 0's search; a failure travels as text, so that all ranks end alike."""
        found: dict[str, Any] = {}
        if self.world.leads:
            try:
                found["path"] = checkpoint_retention.newest_valid(self.run.path, self._say_once, self._problem)
            except LockstepError as error:
                found["error"] = str(error), error.exit_code
        found = self.world.from_leader({name: str(v) if isinstance(v, Path) else v for name, v in found.items()})
        if "error" in found:
            raise error_of(*found["error"])
        return Path(found["path"]) if found["path"] else None

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self.say(line)

    def _agreed(self, look: Callable[..., str], *at: Any) -> str:
        """What any rank found wrong; an error of one is raised by all."""
        mine: dict[str, Any] = {}
        try:
            mine["problem"] = look(*at)
        except LockstepError as error:
            mine["error"] = str(error), error.exit_code
        everyone = self.world.gather_json(mine)
        for other in everyone:
            if "error" in other:
                raise error_of(*other["error"])
        return next((other["problem"] for other in everyone if other["problem"]), "")

    def _problem(self, path: Path) -> str:
        """What shows that this learner has not written a checkpoint; UserError where settings may be the reason."""
        if path.name in self._refused:
            return self._refused[path.name]
        manifest = checkpoint.expected_manifest(path, self._expected())
        try:
            state = checkpoint.read_state(path, manifest)
        except NoValidCheckpoint as damage:
            return str(damage)
        loop = state.pop("loop", None)
        problem = state_problem(state, self._counters) or notes_problem(loop)
        if not problem and state.get("steps", manifest.step) != manifest.step:
            problem = f"state.json: steps is {state['steps']}, and {manifest.step} in manifest.json"
        return problem or self._misfit(path, manifest, state)

    def _expected(self) -> dict[str, Any]:
        return {"workload": self.workload, "lanes": self.world.lanes.total}

    def _misfit(self, path: Path, manifest: Manifest, state: Mapping[str, Any]) -> str:
        try:
            misfit = find_misfit(path, manifest, self.learner.outline(state))
        except Damaged as damage:
            return str(damage)
        if misfit is None:
            return ""
        changed = self._changed(manifest)
        if not changed or not misfit.by_settings:
            return misfit.problem
        if misfit.problem.startswith(checkpoint.MODEL):
            raise UserError(f"{path}: {misfit.problem}; a run keeps its network: resume with the sizes that it had")
        # Shapes that follow from a setting are the learner's to judge: it may have a use for others, or an error that
        # names the setting.
        return ""

    def _load(self, path: Path, notes: dict[str, float]) -> str:
        try:
            snapshot = checkpoint.load(path, self.world.lanes.mine, expect=self._expected())
        except NoValidCheckpoint as damage:
            return str(damage)
        notes |= snapshot.state.pop("loop")
        try:
            self.learner.load(snapshot)
        except _UNFIT as error:
            problem = f"{type(error).__name__}: {error}"
            if tells_of_memory(problem):
                raise
            return self._blame(path, problem.splitlines()[0])
        return ""

    def _blame(self, path: Path, problem: str) -> str:
        """The checkpoint, unless settings that differ from those it was made with can be the reason."""
        changed = self._changed(checkpoint.read_manifest(path))
        if changed:
            raise UserError(
                f"{path}: cannot be gone on with ({problem}); it was made with {changed}: resume with the settings "
                "that it had"
            )
        return problem

    def _changed(self, manifest: Manifest) -> str:
        """The settings that differ from those a checkpoint was made with, in words; empty where none does."""
        told = manifest.lookup(MADE_WITH)
        try:
            text = told if isinstance(told, str) else self.run.read_config()[1]
            before = from_yaml(text, type(self.config))
        except UserError:
            return "settings that this version does not know"
        changes = self.config.changes_since(before)
        return ", ".join(f"{name} {shown(old)} and not {shown(new)}" for name, (old, new) in changes.items())
