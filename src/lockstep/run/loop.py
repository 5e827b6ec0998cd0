"""The training loop decides *when* to step, compare, log, evaluate, save and stop; the learner decides *what*."""

import contextlib
import time
from functools import partial
from typing import Any, Protocol

from lockstep import failpoints
from lockstep.compute.random import derive_seed
from lockstep.config.config import AnyConfig
from lockstep.distributed.world import World
from lockstep.launch.heartbeat import EVALUATING, SAVING, Heartbeat
from lockstep.launch.stop_request import StopRequest, leave
from lockstep.reporting.display import WARNING, Display
from lockstep.reporting.fingerprints import Fingerprints
from lockstep.reporting.health import FiniteWatch
from lockstep.reporting.journal import Journal
from lockstep.run.learner import Learner
from lockstep.run.safe_points import SafePoints, UpdateAbandoned
from lockstep.storage import checkpoint
from lockstep.storage.outline import AFTER_UPDATE
from lockstep.storage.run_events import Kind

LONG_UPDATE = 5.0
"""Seconds; after an update that took longer, a stop abandons the next one and does not wait for its end."""


class Keeper(Protocol):
    """Stores what must outlive the process."""

    def save(self, notes: dict[str, Any]) -> None:
        """Start a checkpoint, which is written while training continues. Called by every rank."""

    def keep(self, notes: dict[str, Any]) -> None:
        """Keep the state as it is now in memory, if there is room, for `save_kept`. Called by every rank."""

    def save_kept(self) -> str:
        """Write what was kept, wait until it is complete, and say where a restart begins. Called by every rank.

        The learner's own state is of no use by then.
        """

    def settle(self) -> None:
        """Wait until the last checkpoint is complete; raises if it failed. Called by every rank."""

    def keep_weights(self, name: str, score: float) -> None:
        """Store the weights alone under a name. Called by every rank."""

    def note_event(self, kind: Kind, text: str) -> None:
        """Write down what happened to the run at this step. May be called by some ranks only."""


class Loop:
    """One run, from the learner's current state to the end."""

    def __init__(
        self, learner: Learner, world: World, config: AnyConfig, journal: Journal, keeper: Keeper, display: Display
    ) -> None:
        self._learner, self._world, self._config = learner, world, config
        self._journal, self._keeper, self._display = journal, keeper, display
        self._fingerprints = Fingerprints(lambda: checkpoint.weights_hash(dict(learner.model.state_dict())))
        self._heartbeat = Heartbeat.of_this_rank()
        self._finite = FiniteWatch(world, config.run.nonfinite_limit, learner.updates)
        self.notes: dict[str, Any] = {"best": float("-inf"), "seconds": 0.0}
        """The loop's own state, which checkpoints keep: the best score, seconds of training, and AFTER_UPDATE."""

    def run(self) -> None:
        """Train until done; raises when the world agreed to stop early. Called by every rank."""
        with StopRequest(self._display.answer) as request, contextlib.ExitStack() as stack:
            safe_points = SafePoints(self._world, lambda: request.flag)
            self._learner.safe_point = safe_points
            # Compiled functions are traced through, and a GPU's are short.
            if self._world.size == 1 and self._world.device.type == "cpu" and self._config.run.compile != "default":
                stack.enter_context(safe_points.watching_layers(self._learner.model))
            if left := self.notes.pop(AFTER_UPDATE, None):
                self._journal.take_up(left["reports"])
                # A copy: a checkpoint that is being written may hold the same note.
                finished = self._complete_or_stop(dict(left), safe_points)
            else:
                finished = self._finished()
            # How long the first update takes is not known. Before it the run is where a restart begins in any case.
            is_long = True
            while not finished:
                # A signal may reach only one rank. All ranks must leave at the same update, or the others would wait
                # for its next all-reduce. With a request the length of the update does not matter any more.
                flag, any_long = divmod(self._world.agree(2 * request.flag + is_long), 2)
                if flag:
                    self._save(last=True)
                    leave(flag, self._learner.steps)
                # A short update is finished before a stop.
                safe_points.open(bool(any_long), in_update=True)
                if any_long:
                    self._keeper.keep(self.notes)
                before = self._learner.steps
                is_long = self._update_or_stop() > LONG_UPDATE
                left = {"before": before, "evaluates": self._learner.evaluation_due, "reviewed": False}
                finished = self._complete_or_stop(left, safe_points)
        self._save(last=True)

    def _update_or_stop(self) -> float:
        """One update; a stop request abandons it if it is a long one. Returns its seconds."""
        learner = self._learner
        steps, updates, start = learner.steps, learner.updates, time.monotonic()
        self._heartbeat.tell(steps, "learning")
        failpoints.reach_update(updates, learner.model)
        try:
            reports = learner.step()
        except UpdateAbandoned as abandoned:
            learner.steps, learner.updates = steps, updates
            self._heartbeat.tell(steps, SAVING)
            leave(abandoned.request, steps, self._keeper.save_kept())
        self._journal.note(reports, learner.timings())
        self._warn(self._finite.note(learner.updates, reports))
        seconds = time.monotonic() - start
        self.notes["seconds"] += seconds
        return seconds

    def _complete_or_stop(self, left: dict[str, Any], safe_points: SafePoints) -> bool:
        """Do what is due after an update, or leave it to the resume; returns whether the run is finished.

        `left`: the step before the update, whether the learner asks for an evaluation, and whether it has reviewed.
        """
        # Also in an evaluation that is short: nothing is lost with it, and no copy has to be kept.
        safe_points.open(True)
        try:
            return self._complete(left)
        except UpdateAbandoned as abandoned:
            # The log point that was to hold the evaluation is written after the resume, with what belongs to it.
            self.notes[AFTER_UPDATE] = {**left, "reports": self._journal.unwritten()}
            self._save(last=True)
            leave(abandoned.request, self._learner.steps)

    def _complete(self, left: dict[str, Any]) -> bool:
        """Review, evaluate, log and save, as far as each is due; returns whether the run is finished."""
        learner, config, before = self._learner, self._config, left["before"]
        self._heartbeat.tell(learner.steps, EVALUATING)
        if not left["reviewed"]:
            start = time.monotonic()
            learner.review()
            left["reviewed"] = True
            self.notes["seconds"] += time.monotonic() - start
        finished = self._finished()
        if config.run.check_every and learner.updates % config.run.check_every == 0:
            self.compare_replicas()
        due = left["evaluates"] or _crossed(before, learner.steps, config.run.eval_every)
        evaluates = bool(config.run.eval_every) and (finished or due)
        if evaluates:
            self.evaluate()
        self._journal.note_timings(learner.timings())
        self._heartbeat.tell(learner.steps, "logging")
        if finished or evaluates or learner.updates % config.run.log_every == 0:
            fingerprint = partial(self._fingerprints.for_log, learner.updates)
            self._display.progress(learner.steps, self._journal.write(learner.steps, fingerprint))
            while self._journal.warnings:
                self._warn(self._journal.warnings.pop(0))
        if _crossed(before, learner.steps, config.run.checkpoint_every) and not finished:
            self._save()
        return finished

    def compare_replicas(self) -> str:
        """Stop unless every rank holds the same weights; returns their hash. Called by every rank."""
        fingerprint = self._fingerprints.take(self._learner.updates)
        self._world.check_replicas(fingerprint, f"step {self._learner.steps:,}")
        return fingerprint

    def evaluate(self) -> None:
        """Measure the model, and keep it if it is the best so far. Called by every rank."""
        seed = derive_seed(self._config.run.seed, "evaluation") % 2**31
        evaluation = self._learner.evaluate(self._config.run.eval_episodes, seed)
        self._journal.note_evaluation(evaluation)
        # Every rank has the results of all episodes, so all ranks decide alike.
        if evaluation.score() > self.notes["best"]:
            try:
                self._keeper.keep_weights("best", evaluation.score())
            except checkpoint.CheckpointFailed as error:
                self._warn(
                    f"{error}; training continues, and the next evaluation above {self.notes['best']:.4g} tries again"
                )
            else:
                self.notes["best"] = evaluation.score()

    def _warn(self, line: str | None) -> None:
        if line:
            self._display.say(f"{WARNING}{line}")
            self._keeper.note_event("warning", line)

    def _finished(self) -> bool:
        config, learner = self._config, self._learner
        enough = learner.done() or (config.run.max_updates and learner.updates >= config.run.max_updates)
        # Clocks differ between ranks, so the end is agreed on below.
        late = config.run.max_hours and self.notes["seconds"] >= config.run.max_hours * 3600
        return bool(self._world.agree(int(bool(enough or late))))

    def _save(self, last: bool = False) -> None:
        self._heartbeat.tell(self._learner.steps, SAVING)
        # Never save weights that differ between ranks: a checkpoint holds one copy for all of them.
        self.compare_replicas()
        self._keeper.save(self.notes)
        if last:
            # Earlier failures are only warnings: older checkpoints remain, and the next one may find disk space.
            self._keeper.settle()


def _crossed(before: int, after: int, every: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]; False if `every` is 0."""
    return bool(every) and after // every > before // every
