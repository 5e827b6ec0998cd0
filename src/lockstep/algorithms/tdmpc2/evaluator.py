"""How good a model is: whole episodes without the noise of training, shared out over lanes. E: environments."""

from collections.abc import Callable

from torch import Tensor

from lockstep.algorithms.tdmpc2.model import TDMPC2Model
from lockstep.algorithms.tdmpc2.pilot import Change, Pilot
from lockstep.algorithms.tdmpc2.planner import Planner
from lockstep.core.distributed.world import World
from lockstep.core.learner import Evaluation
from lockstep.core.precision import Precision
from lockstep.parts.evaluation import evaluate
from lockstep.parts.vector_env import ContinuousEnv

AT_ONCE = 128
"""Episodes that a rank plays side by side: each has a simulator of its own, of a dozen megabytes."""
_PILOTS = 8
"""Pilots that are kept; each may hold a recorded plan for all of its environments."""
MakeEnv = Callable[[Tensor, int], ContinuousEnv]
"""Environments with these numbers over the whole run (E,), on the host, and a seed."""


class Evaluator:
    """Plays episodes; pilots are kept for the next time that the same is asked for."""

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
        self._pilots: dict[tuple[int, int, int, bool], Pilot] = {}

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Episodes 0..episodes-1, each in the environment of its number. Called by every rank."""

        def make_env(index: Tensor) -> ContinuousEnv:
            return self._make_env(index.cpu(), seed)

        return evaluate(self._world, make_env, self.acting(seed), episodes, seed, self._name, at_once=AT_ONCE)

    def acting(self, seed: int, explore: bool = False, clock: int = 0) -> Callable[[Tensor, ContinuousEnv], Tensor]:
        """A policy for environments that come one after another, each of them played from its first step on.

        It acts as an evaluation with this seed does, or with the noise of training. `clock`: of their first steps.
        """
        clocks: list[tuple[ContinuousEnv, int]] = []

        def act(observation: Tensor, env: ContinuousEnv) -> Tensor:
            now = clocks[0][1] + 1 if clocks and clocks[0][0] is env else clock
            clocks[:] = [(env, now)]
            pilot = self._pilot(env, seed, explore)
            pilot.see(observation, env.steps == 0)
            pilot.decide(now)
            return pilot.action()

        return act

    def _pilot(self, env: ContinuousEnv, seed: int, explores: bool) -> Pilot:
        device = self._world.device
        key = (int(env.index[0]), len(env.index), seed, explores)
        if key not in self._pilots:
            if len(self._pilots) == _PILOTS:
                self._pilots.pop(next(iter(self._pilots)))
            self._pilots[key] = Pilot(
                self._model,
                self._planner,
                env.index.to(device),
                env.task.to(device) if self._model.spaces.tasks > 1 else None,
                seed,
                self._precision,
                explores=explores,
                recorded=self._recorded,
            )
        return self._pilots[key]
