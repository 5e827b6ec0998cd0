"""Action vectors: how an actor's outputs become actions, and what a replay buffer keeps of them.

T: time, E: environments, A: agents, K: actions.
"""

from typing import Literal

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.rl import distributions
from lockstep.rl.replay import Column

Activation = Literal["softmax", "tanh"]
# Keeps logarithms finite where a weight is zero: a tanh vector at -1, a softmax that underflows, a uniform 0.
_LEAST_WEIGHT = 1e-6


class ActionVectors:
    """Turns an actor's outputs (..., K) into vectors of action weights, into probabilities, and into replay columns."""

    def __init__(self, activation: Activation, count: int, executed: bool) -> None:
        """`executed`: the replay buffer keeps the action that was taken, instead of the vector it was drawn from."""
        self.count = count
        self._tanh = activation == "tanh"
        self._executed = executed

    def of(self, outputs: Tensor) -> Tensor:
        """The vector of an actor's outputs, in fp32."""
        outputs = outputs.float()
        return torch.tanh(outputs) if self._tanh else torch.softmax(outputs, -1)

    def exploring(self, uniform: Tensor) -> Tensor:
        """A vector from anywhere in the range, made from K uniform numbers."""
        return 2.0 * uniform - 1.0 if self._tanh else uniform

    def log_probabilities(self, vector: Tensor) -> Tensor:
        """The log-probability with which each action is drawn."""
        weight = ((vector + 1.0) / 2.0 if self._tanh else vector).clamp(min=_LEAST_WEIGHT)
        return (weight / weight.sum(-1, keepdim=True)).log()

    def choose(self, vector: Tensor, uniform: Tensor) -> Tensor:
        """Draw actions by their probabilities, from a uniform number each: (..., K), (...) -> (...)."""
        return distributions.sample_categorical(self.log_probabilities(vector), uniform)

    def column(self, agents: int) -> Column:
        """The replay column for a step's actions."""
        return Column((agents,), torch.uint8) if self._executed else Column((agents, self.count))

    def remembered(self, vector: Tensor, action: Tensor) -> Tensor:
        """What of a step goes into that column."""
        return action if self._executed else vector

    def judged(self, outputs: Tensor) -> Tensor:
        """The critic's input (..., K) for an actor's outputs.

        If the replay buffer keeps actions, the critic learns from one-hot vectors, so here it gets probabilities, of
        which one-hot vectors are the extremes.
        """
        vector = self.of(outputs)
        return self.log_probabilities(vector).exp() if self._executed else vector

    def recalled(self, kept: Tensor) -> Tensor:
        """The critic's input (..., K) for what the replay buffer kept."""
        if not self._executed:
            return kept
        return (kept.unsqueeze(-1) == torch.arange(self.count, device=kept.device)).float()


class TeamActions(distributions.CategoricalActions):
    """Discrete actions of several agents in each environment, each drawn with a number of its own."""

    def __init__(self, agents: int) -> None:
        self._agents = agents

    def noise(self, seed: int, index: Tensor, clock: Tensor, purpose: str = "action") -> Tensor:
        """(T, E, A) uniform numbers to sample actions with, for environments `index` (E,) at steps `clock` (T,)."""
        agent = torch.arange(self._agents, device=index.device)
        return random.uniform(seed, purpose, index[None, :, None], clock[:, None, None], agent)
