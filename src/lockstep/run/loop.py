"""The loop: it owns *when* (step, compare, log, evaluate, save, stop); the learner owns *what*."""

import time
from typing import Protocol

from lockstep import failpoints
from lockstep.compute.random import derive_seed
from lockstep.config.run_config import RunConfig
from lockstep.distributed.world import World
from lockstep.launch.heartbeat import Heartbeat
from lockstep.launch.stop_request import StopRequest, leave
from lockstep.reporting.display import Display
from lockstep.reporting.health import FiniteWatch
from lockstep.reporting.journal import Journal
from lockstep.run.learner import Learner, asks_for_evaluation
from lockstep.storage import checkpoint


class Keeper(Protocol):
    """Where the loop puts what must outlive it."""

    def save(self, notes: dict[str, float]) -> None:
        """Begin a checkpoint, which is written while the training goes on. Called by every rank."""

    def settle(self) -> None:
        """Wait until the checkpoint begun last stands; raises where it cannot. Called by every rank."""

    def keep_weights(self, name: str, score: float) -> None:
        """Keep the weights alone under a name. Called by every rank."""


class Loop:
    """One run from wherever the learner stands to its end."""

    def __init__(
        self, learner: Learner, world: World, config: RunConfig, journal: Journal, keeper: Keeper, display: Display
    ) -> None:
        self._learner, self._world, self._config = learner, world, config
        self._journal, self._keeper, self._display = journal, keeper, display
        self.notes: dict[str, float] = {"best": float("-inf"), "seconds": 0.0}
        """What the loop itself must remember over a resume."""

    def run(self) -> None:
        """Train until done; raises when the world agreed to stop early. Called by every rank."""
        learner, config = self._learner, self._config
        heartbeat = Heartbeat.of_this_rank()
        finite = FiniteWatch(self._world, config.nonfinite_limit, learner.updates)
        finished = self._finished()
        with StopRequest(answers=self._world.leads) as request:
            while not finished:
                if flag := self._world.agree(request.flag):
                    self._save(last=True)
                    leave(flag, learner.steps)
                before, start = learner.steps, time.monotonic()
                heartbeat.tell(before, "learning")
                failpoints.reach_update(learner.updates, learner.model)
                reports = learner.step()
                self._journal.note(reports, learner.timings())
                self._warn(finite.note(learner.updates, reports))
                self.notes["seconds"] += time.monotonic() - start
                heartbeat.tell(learner.steps, "logging, evaluating or saving")
                finished = self._finished()
                if config.check_every and learner.updates % config.check_every == 0:
                    self.compare_replicas()
                due = asks_for_evaluation(learner) or _crossed(before, learner.steps, config.eval_every)
                evaluates = bool(config.eval_every) and (finished or due)
                if evaluates:
                    self.evaluate()
                if finished or evaluates or learner.updates % config.log_every == 0:
                    self._display.progress(learner.steps, self._journal.write(learner.steps))
                    while self._journal.warnings:
                        self._warn(self._journal.warnings.pop(0))
                if _crossed(before, learner.steps, config.checkpoint_every) and not finished:
                    self._save()
        self._save(last=True)

    def compare_replicas(self) -> str:
        """Stop unless every rank holds the same weights; returns their hash. Called by every rank."""
        fingerprint = checkpoint.weights_hash(dict(self._learner.model.state_dict()))
        self._world.check_replicas(fingerprint, f"step {self._learner.steps:,}")
        return fingerprint

    def evaluate(self) -> None:
        """Measure the model, and keep it if it is the best so far. Called by every rank."""
        seed = derive_seed(self._config.seed, "evaluation") % 2**31
        evaluation = self._learner.evaluate(self._config.eval_episodes, seed)
        self._journal.note_evaluation(evaluation)
        # Every rank has all episodes, so every rank decides alike.
        if evaluation.score() > self.notes["best"]:
            try:
                self._keeper.keep_weights("best", evaluation.score())
            except checkpoint.CheckpointFailed as error:
                self._warn(
                    f"{error}; training goes on, and the next evaluation above {self.notes['best']:.4g} tries again"
                )
            else:
                self.notes["best"] = evaluation.score()

    def _warn(self, line: str | None) -> None:
        if line:
            self._display.say(f"warning: {line}")

    def _finished(self) -> bool:
        config, learner = self._config, self._learner
        enough = learner.done() or (config.max_updates and learner.updates >= config.max_updates)
        late = config.max_hours and self.notes["seconds"] >= config.max_hours * 3600
        return bool(self._world.agree(int(bool(enough or late))))

    def _save(self, last: bool = False) -> None:
        self.compare_replicas()
        self._keeper.save(self.notes)
        if last:
            # Before that, a checkpoint that fails costs a warning: those before it stand, the next may find room.
            self._keeper.settle()


def _crossed(before: int, after: int, every: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]; never for 0."""
    return bool(every) and after // every > before // every
