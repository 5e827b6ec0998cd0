"""Resuming: finds and loads the newest intact checkpoint that fits this learner. Called by every rank."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.config.config import NETWORK, AnyConfig
from lockstep.config.sources import from_yaml
from lockstep.config.values import shown
from lockstep.distributed.world import World
from lockstep.errors import LockstepError, NoValidCheckpoint, UserError, from_json, to_json
from lockstep.launch.failures import is_out_of_memory
from lockstep.run import arithmetic
from lockstep.run.learner import Learner, refuse_other_record
from lockstep.storage import checkpoint, checkpoint_retention
from lockstep.storage.manifest import COMPUTED_WITH, MADE_WITH, Damaged, Manifest
from lockstep.storage.outline import find_misfit, notes_problem, state_problem
from lockstep.storage.run_directory import RunDirectory

_UNFIT = (RuntimeError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError)
"""What a learner may raise when it loads a state that is not its own."""


@dataclass
class Resumption:
    """One run's search for the checkpoint to resume from."""

    run: RunDirectory
    workload: str
    config: AnyConfig
    world: World
    learner: Learner
    say: Callable[[str], None]
    only: Path | None = None
    """The checkpoint to resume from, if the user chose one; no other is tried."""
    _refused: dict[str, str] = field(default_factory=dict)
    """Why intact checkpoints were refused, by name."""
    _said: set[str] = field(default_factory=set)
    _counters: dict[str, Any] = field(default_factory=dict)
    """What the learner keeps in state.json, as it is before loading."""

    def take_up(self) -> tuple[Path, dict[str, Any]] | None:
        """Load the newest usable checkpoint; returns its path and the loop's notes, or None if there is none."""
        # On all ranks at once: a learner may create parts of itself on first use, and all ranks must do so together.
        self._counters = self.learner.state().state
        while (path := self._newest()) is not None:
            notes: dict[str, Any] = {}
            problem = self._agreed(self._problem, path) or self._agreed(self._load, path, notes)
            if not problem:
                return path, notes
            self._refused[path.name] = problem
        return None

    def _newest(self) -> Path | None:
        """The newest checkpoint not yet refused. Rank 0 searches and shares the result."""
        found = self.world.led(
            lambda: str(
                checkpoint_retention.newest_valid(self.run.path, self._say_once, self._problem) or ""
                if self.only is None
                else checkpoint_retention.chosen_valid(self.only, self._problem)
            )
        )
        return Path(found) if found else None

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self.say(line)

    def _agreed(self, look: Callable[..., str], *at: Any) -> str:
        """The first problem that any rank found, or empty; an error on one rank is raised on all."""
        mine: dict[str, Any] = {}
        try:
            mine["problem"] = look(*at)
        except LockstepError as error:
            mine["error"] = to_json(error)
        everyone = self.world.gather_json(mine)
        for other in everyone:
            if "error" in other:
                raise from_json(other["error"])
        return next((other["problem"] for other in everyone if other["problem"]), "")

    def _problem(self, path: Path) -> str:
        """Why a checkpoint does not fit this learner, or empty; UserError if changed settings may be the reason."""
        if path.name in self._refused:
            return self._refused[path.name]
        manifest = checkpoint.expected_manifest(path, self._expected())
        refuse_other_record(str(path), manifest.lookup("data"), self.learner.data_record)
        if manifest.lookup("sync") == "exact":
            self._compare_arithmetic(path, manifest)
        try:
            state = checkpoint.read_state(path, manifest)
        except NoValidCheckpoint as damage:
            return str(damage)
        loop = state.pop("loop", None)
        problem = state_problem(state, self._counters) or notes_problem(loop)
        if not problem and state.get("steps", manifest.step) != manifest.step:
            problem = f"state.json: steps is {state['steps']}, and {manifest.step} in manifest.json"
        return problem or self._misfit(path, manifest, state)

    def _compare_arithmetic(self, path: Path, manifest: Manifest) -> None:
        """Raise UserError if the run would not go on to the same bits although it was asked to be exact."""
        if self.world.sync == "fast":
            if self.config.run.sync == "auto":
                self._say_once(f"{path}: was made in exact, which is not the default here: it goes on in fast")
            return
        changed = arithmetic.difference(manifest.lookup(COMPUTED_WITH), self.config.run, self.world)
        if changed and self.config.run.sync == "exact":
            raise UserError(
                f"{path}: {changed}, so exact could not continue to the same bits; resume it where it was made or with "
                "--sync fast, or start a new run there with --branch-from"
            )
        if changed:
            self._say_once(f"{path}: {changed}: it goes on, to other bits than there; with --sync exact it would not")

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
        if misfit.lane_lacks and not changed:
            # Its files match their hashes: most likely an earlier version made it, whose state had less in it.
            return f"{misfit.problem}; if an earlier version made it, a new run takes its weights: --load-model RUN"
        if not changed or not misfit.by_settings:
            return misfit.problem
        if misfit.problem.startswith(checkpoint.MODEL):
            shaping = self._changed(manifest, of_network=True) or changed
            raise UserError(
                f"{path} was made with {shaping}, and a run keeps its network ({misfit.problem}); give what it had, "
                "or take over its weights alone, as far as they fit, in a new run with --load-model"
            )
        # Other shapes that follow from settings are left to the learner: it may accept them, or name the setting.
        return ""

    def _load(self, path: Path, notes: dict[str, Any]) -> str:
        try:
            snapshot = checkpoint.load(path, self.world.lanes.mine, expect=self._expected())
        except NoValidCheckpoint as damage:
            return str(damage)
        notes |= snapshot.state.pop("loop")
        try:
            self.learner.load(snapshot)
        except UserError as error:
            # The learner says what does not fit; which setting was another one is known here.
            changed = self._changed(checkpoint.read_manifest(path))
            if not changed:
                raise
            raise UserError(f"{path} was made with {changed}: give the settings it had ({error})") from error
        except _UNFIT as error:
            problem = f"{type(error).__name__}: {error}"
            if is_out_of_memory(problem):
                raise
            return self._blame(path, problem.splitlines()[0])
        return ""

    def _blame(self, path: Path, problem: str) -> str:
        """Blame the checkpoint, or raise UserError if settings changed since it was made: they may be the reason."""
        changed = self._changed(checkpoint.read_manifest(path))
        if changed:
            raise UserError(
                f"{path} was made with {changed}, so it cannot be resumed ({problem}); give the settings it had"
            )
        return problem

    def _changed(self, manifest: Manifest, of_network: bool = False) -> str:
        """The flags that changed since a checkpoint was made, as text; empty if none did.

        `of_network`: only the network's and the problem's, which decide the shapes of weights.
        """
        stored = manifest.lookup(MADE_WITH)
        try:
            # Checkpoints without their own configuration were made with the run's.
            text = stored if isinstance(stored, str) else self.run.read_config()[1]
            before = from_yaml(text, self.config.layout)
        except UserError:
            return "settings that this version does not know"
        sections, layout = self.config.layout.schema.section_of, self.config.layout
        shaping = {layout.workload_name, NETWORK}
        return ", ".join(
            f"--{name.replace('_', '-')} {shown(old)} and not {shown(new)}"
            for name, (old, new) in self.config.changes_since(before).items()
            if not of_network or sections[name] in shaping
        )
