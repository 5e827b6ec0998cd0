"""How good a model is: whole episodes without the noise of training, shared out over lanes. E: environments."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.model import TDMPC2Model
from lockstep.algorithms.tdmpc2.pilot import Change, Pilot
from lockstep.algorithms.tdmpc2.planner import Planner
from lockstep.core.distributed.world import World
from lockstep.core.learner import Evaluation
from lockstep.core.precision import Precision
from lockstep.parts.evaluation import evaluate
from lockstep.parts.vector_env import ContinuousEnv

MakeEnv = Callable[[Tensor, int], ContinuousEnv]
"""Environments with these numbers over the whole run (E,), on the host, and a seed."""


class CountedEnv(ContinuousEnv, Protocol):
    """Environments that tell where they are."""

    @property
    def index(self) -> Tensor:
        """(E,) their numbers over the whole run."""

    @property
    def steps(self) -> Tensor:
        """(E,) steps that each episode has so far."""


class Evaluator:
    """Plays episodes; the pilots of an evaluation are kept for the next one of the same seed."""

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
        """`planner`: None = the policy prior alone. `name`: the workload's."""
        self._model, self._planner, self._make_env = model, planner, make_env
        self._world, self._precision, self._recorded, self._name = world, precision, recorded, name
        self._pilots: dict[tuple[int, int, int], Pilot] = {}

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Episodes 0..episodes-1, each in the environment of its number. Called by every rank."""
        crew: list[_Shift] = []

        def make_env(index: Tensor) -> ContinuousEnv:
            env = self._make_env(index.cpu(), seed)
            crew[:] = [_Shift(self._pilot(index, env, seed))]
            return env

        def act(observation: Tensor, _: ContinuousEnv) -> Tensor:
            return crew[0].act(observation)

        return evaluate(self._world, make_env, act, episodes, seed, self._name)

    def acting(self, seed: int, explore: bool = False) -> Callable[[Tensor, CountedEnv], Tensor]:
        """A policy for environments that come one after another, each of them played from its first step on.

        It acts as an evaluation with this seed does, or with the noise of training.
        """
        crew: list[tuple[CountedEnv, _Shift]] = []

        def act(observation: Tensor, env: CountedEnv) -> Tensor:
            if not crew or crew[0][0] is not env:
                index = env.index.to(self._world.device)
                crew[:] = [(env, _Shift(self._new_pilot(index, env, seed, explore)))]
            return crew[0][1].act(observation, env.steps == 0)

        return act

    def _pilot(self, index: Tensor, env: ContinuousEnv, seed: int) -> Pilot:
        key = (int(index[0]), len(index), seed)
        if key not in self._pilots:
            self._pilots[key] = self._new_pilot(index, env, seed, explores=False)
        return self._pilots[key]

    def _new_pilot(self, index: Tensor, env: ContinuousEnv, seed: int, explores: bool) -> Pilot:
        task = env.task.to(index.device) if self._model.spaces.tasks > 1 else None
        return Pilot(
            self._model,
            self._planner,
            index,
            task,
            seed,
            self._precision,
            explores=explores,
            recorded=self._recorded,
        )


class _Shift:
    """A pilot from the beginning of some episodes on."""

    def __init__(self, pilot: Pilot) -> None:
        self._pilot = pilot
        self._clock = 0

    def act(self, observation: Tensor, begins: Tensor | None = None) -> Tensor:
        """What the pilot does at the next step; `begins` (E,): where it is an episode's first, none = all at once."""
        self._pilot.see(observation, torch.full((len(observation),), self._clock == 0) if begins is None else begins)
        self._pilot.decide(self._clock)
        self._clock += 1
        return self._pilot.action()
