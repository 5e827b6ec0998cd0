"""Evaluates a model on whole episodes without exploration noise, distributed over lanes. E: environments."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.model.networks import TDMPC2Model
from lockstep.algorithms.tdmpc2.planning.actor import Actor, Change
from lockstep.algorithms.tdmpc2.planning.planner import Planner
from lockstep.compute.precision import Precision
from lockstep.distributed.world import World
from lockstep.envs.vector_env import ContinuousEnv
from lockstep.reporting.evaluation import Evaluation
from lockstep.rl.evaluation import HOSTED_AT_ONCE, SafePoint, evaluate

_ACTORS = 8
"""Actors that are kept; each may hold a recorded CUDA graph with its memory."""
MakeEnv = Callable[[Tensor, int], ContinuousEnv]
"""(index (E,), seed) -> the environments with these numbers in the whole run; they return host tensors."""


@dataclass
class TaskEvaluation(Evaluation):
    """Episodes of several tasks: logs the mean return of each task instead of the mean task number."""

    tasks: tuple[str, ...] = ()
    number_column: str = ""
    """Key of `extra` with the number of each episode's task."""

    def numbers(self) -> dict[str, float]:
        """The means over all episodes, and each task's mean return."""
        numbers, of = super().numbers(), self.extra[self.number_column]
        del numbers[f"{self.number_column}_mean"]  # a mean of task numbers has no meaning
        for number in sorted(map(int, set(of))):
            earned = [value for value, other in zip(self.returns, of, strict=True) if other == number]
            numbers[f"{self.tasks[number]}_return_mean"] = fmean(earned)
        return numbers


class Evaluator:
    """Plays episodes. Actors are kept, since recording their plans again for every evaluation would be slow."""

    def __init__(
        self,
        model: TDMPC2Model,
        planner: Planner | None,
        make_env: MakeEnv,
        world: World,
        precision: Precision,
        recorded: Change,
        name: str,
    ) -> None:
        """`planner`: None = the policy prior alone. `name`: the workload's name."""
        self._model, self._planner, self._make_env = model, planner, make_env
        self._world, self._precision, self._recorded, self._name = world, precision, recorded, name
        self._actors: dict[tuple[int, int, bool], Actor] = {}

    def evaluate(self, episodes: int, seed: int, safe_point: SafePoint) -> Evaluation:
        """Play episodes 0..episodes-1, each in the environment with its number. Called by every rank."""

        def make_env(index: Tensor) -> ContinuousEnv:
            return self._make_env(index, seed)

        act, at_once = self.acting(seed), HOSTED_AT_ONCE
        found = evaluate(self._world, make_env, act, episodes, seed, self._name, at_once=at_once, safe_point=safe_point)
        tasks = self._model.spaces.names
        return TaskEvaluation(**vars(found), tasks=tasks, number_column=f"{self._name}_task") if tasks[1:] else found

    def acting(self, seed: int, explore: bool = False, clock: int = 0) -> Callable[[Tensor, ContinuousEnv], Tensor]:
        """A policy that plays one batch of environments after another, each from its first step.

        It acts like an evaluation with this seed; `explore`: with the noise of training. `clock`: counter of the
        random numbers at their first steps.
        """
        clocks: list[tuple[ContinuousEnv, int]] = []

        def act(observation: Tensor, env: ContinuousEnv) -> Tensor:
            actor = self._actor(len(env.index), seed, explore)
            # The same batch of environments as in the last call: its next step. Another one: start over.
            continues = bool(clocks) and clocks[0][0] is env
            now = clocks[0][1] + 1 if continues else clock
            clocks[:] = [(env, now)]
            if not continues:
                actor.board(env.index, env.task if self._model.spaces.tasks > 1 else None)
            actor.see(observation, env.steps == 0)
            actor.decide(now)
            return actor.action()

        return act

    def _actor(self, count: int, seed: int, explores: bool) -> Actor:
        """The actor for a batch of this size, whichever environments it holds."""
        key = (count, seed, explores)
        if key not in self._actors:
            if len(self._actors) == _ACTORS:
                # Dictionaries keep insertion order: the first key is the oldest actor.
                self._actors.pop(next(iter(self._actors)))
            # Placeholders, which `board` overwrites in place.
            unset = torch.zeros(count, dtype=torch.int64, device=self._world.device)
            self._actors[key] = Actor(
                self._model,
                self._planner,
                unset,
                unset.clone() if self._model.spaces.tasks > 1 else None,
                seed,
                self._precision,
                explores=explores,
                recorded=self._recorded,
            )
        return self._actors[key]
