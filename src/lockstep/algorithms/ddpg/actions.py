"""Action vectors: how an actor's outputs become actions, and how the replay buffer stores them.

T: time, E: environments, A: agents, K: actions.
"""

from typing import Literal

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.rl import distributions
from lockstep.rl.replay import Column

Activation = Literal["softmax", "tanh"]
# Keeps logarithms finite for weights of zero: a tanh vector at -1, a softmax that underflows, a uniform 0.
_LEAST_WEIGHT = 1e-6


class ActionVectors:
    """Turns an actor's outputs (..., K) into vectors of action weights, into probabilities, and into replay columns."""

    def __init__(self, activation: Activation, count: int, stores_actions: bool) -> None:
        """`stores_actions`: the replay buffer keeps the action taken, not the vector it was sampled from."""
        self.count = count
        self._tanh = activation == "tanh"
        self._stores_actions = stores_actions

    def activate(self, outputs: Tensor) -> Tensor:
        """The vector for an actor's outputs, in fp32."""
        # Under autocast the outputs are in half precision.
        outputs = outputs.float()
        return torch.tanh(outputs) if self._tanh else torch.softmax(outputs, -1)

    def explore(self, uniform: Tensor) -> Tensor:
        """A random vector from the activation's range, from K uniform numbers."""
        # Not normalised, as in the guide: `log_probabilities` divides by the sum.
        return 2.0 * uniform - 1.0 if self._tanh else uniform

    def log_probabilities(self, vector: Tensor) -> Tensor:
        """The log-probability of each action."""
        # A tanh vector lies in [-1, 1]; shifted and scaled to [0, 1], it holds weights like a softmax vector.
        weight = ((vector + 1.0) / 2.0 if self._tanh else vector).clamp(min=_LEAST_WEIGHT)
        return (weight / weight.sum(-1, keepdim=True)).log()

    def sample(self, vector: Tensor, uniform: Tensor) -> Tensor:
        """Sample actions, one per uniform number: (..., K), (...) -> (...)."""
        return distributions.sample_categorical(self.log_probabilities(vector), uniform)

    def replay_column(self, agents: int) -> Column:
        """The replay column for a step's actions."""
        # A byte per agent instead of K floats.
        return Column((agents,), torch.uint8) if self._stores_actions else Column((agents, self.count))

    def to_replay(self, vector: Tensor, action: Tensor) -> Tensor:
        """What a step writes to that column."""
        return action if self._stores_actions else vector

    def critic_input(self, outputs: Tensor) -> Tensor:
        """The critic's input (..., K) for an actor's outputs.

        If the replay buffer keeps actions, the critic is trained on one-hot vectors. Here it gets probabilities, which
        are mixtures of one-hot vectors; a raw tanh vector would be outside of what it was trained on.
        """
        vector = self.activate(outputs)
        return self.log_probabilities(vector).exp() if self._stores_actions else vector

    def from_replay(self, stored: Tensor) -> Tensor:
        """The critic's input (..., K) for what the replay buffer stored."""
        if not self._stores_actions:
            return stored
        # (..., 1) == (K,): one-hot vectors (..., K).
        return (stored.unsqueeze(-1) == torch.arange(self.count, device=stored.device)).float()


class TeamActions(distributions.CategoricalActions):
    """Discrete actions of several agents in each environment, each sampled with its own random number."""

    def __init__(self, agents: int) -> None:
        self._agents = agents

    def noise(self, seed: int, index: Tensor, clock: Tensor, purpose: str = "action") -> Tensor:
        """(T, E, A) uniform numbers to sample actions with, for environments `index` (E,) at steps `clock` (T,)."""
        agent = torch.arange(self._agents, device=index.device)
        return random.uniform(seed, purpose, index[None, :, None], clock[:, None, None], agent)
