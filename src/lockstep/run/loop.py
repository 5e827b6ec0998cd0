"""The training loop decides *when* to step, compare, log, evaluate, save and stop; the learner decides *what*."""

import time
from functools import partial
from typing import Protocol

from lockstep import failpoints
from lockstep.compute.random import derive_seed
from lockstep.config.config import AnyConfig
from lockstep.distributed.world import World
from lockstep.launch.heartbeat import Heartbeat
from lockstep.launch.stop_request import StopRequest, leave
from lockstep.reporting.display import WARNING, Display
from lockstep.reporting.fingerprints import Fingerprints
from lockstep.reporting.health import FiniteWatch
from lockstep.reporting.journal import Journal
from lockstep.run.learner import Learner
from lockstep.run.safe_points import SafePoints, UpdateAbandoned
from lockstep.storage import checkpoint
from lockstep.storage.run_events import Kind

LONG_UPDATE = 5.0
"""Seconds; after an update that took longer, a stop abandons the next one and does not wait for its end."""


class Keeper(Protocol):
    """Stores what must outlive the process."""

    def save(self, notes: dict[str, float]) -> None:
        """Start a checkpoint, which is written while training continues. Called by every rank."""

    def keep(self, notes: dict[str, float]) -> None:
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
        self.notes: dict[str, float] = {"best": float("-inf"), "seconds": 0.0}
        """The loop's own state, which checkpoints keep: the best score, and seconds of training."""

    def run(self) -> None:
        """Train until done; raises when the world agreed to stop early. Called by every rank."""
        finished = self._finished()
        with StopRequest(answers=self._display.speaks) as request:
            safe_points = SafePoints(self._world, lambda: request.flag)
            self._learner.safe_point = safe_points
            # How long the first update takes is not known. Before it the run is where a restart begins in any case.
            is_long = True
            while not finished:
                # A signal may reach only one rank. All ranks must leave at the same update, or the others would wait
                # for its next all-reduce. With a request the length of the update does not matter any more.
                flag, any_long = divmod(self._world.agree(2 * request.flag + is_long), 2)
                if flag:
                    self._save(last=True)
                    leave(flag, self._learner.steps)
                start = time.monotonic()
                # A short update is finished before a stop.
                safe_points.open(bool(any_long))
                if any_long:
                    self._keeper.keep(self.notes)
                finished = self._update_or_stop()
                is_long = time.monotonic() - start > LONG_UPDATE
        self._save(last=True)

    def _update_or_stop(self) -> bool:
        """One update; a stop request abandons it if it is a long one. Returns whether the run is finished."""
        steps, updates = self._learner.steps, self._learner.updates
        try:
            return self._update()
        except UpdateAbandoned as abandoned:
            self._learner.steps, self._learner.updates = steps, updates
            leave(abandoned.request, steps, self._keeper.save_kept())

    def _update(self) -> bool:
        """One update, and what is due after it; returns whether the run is finished."""
        learner, config = self._learner, self._config
        before, start = learner.steps, time.monotonic()
        self._heartbeat.tell(before, "learning")
        failpoints.reach_update(learner.updates, learner.model)
        reports = learner.step()
        self._journal.note(reports, learner.timings())
        self._warn(self._finite.note(learner.updates, reports))
        self.notes["seconds"] += time.monotonic() - start
        self._heartbeat.tell(learner.steps, "logging, evaluating or saving")
        finished = self._finished()
        if config.run.check_every and learner.updates % config.run.check_every == 0:
            self.compare_replicas()
        due = learner.evaluation_due or _crossed(before, learner.steps, config.run.eval_every)
        evaluates = bool(config.run.eval_every) and (finished or due)
        if evaluates:
            self.evaluate()
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
        # Never save weights that differ between ranks: a checkpoint holds one copy for all of them.
        self.compare_replicas()
        self._keeper.save(self.notes)
        if last:
            # Earlier failures are only warnings: older checkpoints remain, and the next one may find disk space.
            self._keeper.settle()


def _crossed(before: int, after: int, every: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]; False if `every` is 0."""
    return bool(every) and after // every > before // every
