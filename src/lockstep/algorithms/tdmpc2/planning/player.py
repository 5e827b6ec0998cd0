"""A trained world model as a player that plans its actions. B: observations, A: action size."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.planning.evaluator import Evaluator
from lockstep.errors import UserError


@dataclass(frozen=True)
class _Moment:
    """Observations without environments, treated as the first ones of their episodes."""

    index: Tensor
    steps: Tensor


class PlanningPlayer:
    """Plays like an evaluation with this seed, or with the noise of training."""

    def __init__(self, evaluator: Evaluator, tasks: int, seed: int) -> None:
        self._evaluator, self._tasks, self._seed = evaluator, tasks, seed
        self._draws = 0  # explored calls without environments so far: each has random numbers of its own
        self._acting: dict[bool, Callable[..., Tensor]] = {}

    def act(self, observation: Any, env: Any = None, *, explore: bool = False) -> tuple[Tensor, None]:
        """Actions (B, A) for observations of environments, or for observations alone; no probabilities."""
        if env is None:
            return self._alone(observation, explore), None
        if explore not in self._acting:
            # Kept, as it counts the steps of the environments.
            self._acting[explore] = self._evaluator.acting(self._seed, explore)
        return self._acting[explore](observation, env), None

    def _alone(self, observation: Tensor, explore: bool) -> Tensor:
        """Plan for every observation separately, as if an episode started with it."""
        if self._tasks > 1:
            raise UserError(
                "observations: the model knows several tasks, and an observation alone does not say which one it "
                "belongs to; use `lockstep eval`, `play` or `record`"
            )
        index = torch.arange(len(observation))
        # Without exploration, the same observation always gets the same action.
        act = self._evaluator.acting(self._seed, explore, self._draws if explore else 0)
        self._draws += explore
        moment: Any = _Moment(index, torch.zeros_like(index))
        try:
            # A copy: the actor returns the same buffer every time.
            return act(observation.float().cpu(), moment).clone()
        except RuntimeError as error:
            # torch reports a wrong shape as a RuntimeError from inside a layer; its first line has the sizes.
            shape, reason = tuple(observation.shape), str(error).strip().splitlines()[0]
            raise UserError(f"observations of shape {shape}: the model does not take them ({reason})") from error

    def probabilities(self, observation: Any) -> None:
        """None: actions are continuous."""

    def forget(self, ended: Tensor | None = None) -> None:
        """Nothing to do: the environments' step counts show where an episode starts."""
