"""Action vectors: how an actor's outputs become actions, and how the replay buffer stores them.

T: time, E: environments, A: agents, K: discrete actions, or components of a continuous one.
"""

import math
from typing import Literal, Protocol

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.rl import distributions
from lockstep.rl.replay import Column

Activation = Literal["softmax", "tanh"]
# Keeps logarithms finite for weights of zero: a tanh vector at -1, a softmax that underflows, a uniform 0.
_LEAST_WEIGHT = 1e-6


class ActionVectors(Protocol):
    """Turns an actor's outputs (..., K) into vectors, the vectors into actions, and both into replay columns."""

    count: int
    """K."""
    noise_shape: tuple[int, ...]
    """Random numbers that one agent needs to choose an action."""

    def activate(self, outputs: Tensor) -> Tensor:
        """The vector for an actor's outputs, in fp32."""

    def explore(self, uniform: Tensor) -> Tensor:
        """A random vector, from K uniform numbers."""

    def noise(self, seed: int, env: Tensor, step: Tensor, number: Tensor) -> Tensor:
        """(T, E, A, *noise_shape) random numbers for `sample`; env (1, E, 1, 1), step (T, 1, 1, 1), number (A, K)."""

    def sample(self, vector: Tensor, noise: Tensor) -> Tensor:
        """The actions to take: (..., K), (..., *noise_shape) -> actions as the environments expect them."""

    def replay_column(self, agents: int) -> Column:
        """The replay column for a step's actions."""

    def to_replay(self, vector: Tensor, action: Tensor) -> Tensor:
        """What a step writes to that column."""

    def from_replay(self, stored: Tensor) -> Tensor:
        """The critic's input (..., K) for what the replay buffer stored."""

    def critic_input(self, outputs: Tensor) -> Tensor:
        """The critic's input (..., K) for an actor's outputs."""

    def policy(self, outputs: Tensor) -> Tensor:
        """What a trained model answers with: log-probabilities of discrete actions, or continuous ones themselves."""

    def entropy_terms(self, outputs: Tensor) -> Tensor:
        """(..., K) terms whose negative sum is the entropy of an agent's actions."""

    def mode(self, answer: Tensor) -> Tensor:
        """The best action, from what `policy` returned."""

    def family(self, agents: int) -> distributions.ActionFamily:
        """How a player draws actions from what `policy` returned; `agents` 0 = one agent, without an axis."""


class DiscreteVectors:
    """Vectors of action weights, from which one of K actions is sampled. See `ActionVectors`."""

    noise_shape: tuple[int, ...] = ()

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

    def noise(self, seed: int, env: Tensor, step: Tensor, number: Tensor) -> Tensor:
        """One uniform number per agent, (T, E, A)."""
        return random.uniform(seed, "action", env, step, number[:, :1]).squeeze(-1)

    def sample(self, vector: Tensor, noise: Tensor) -> Tensor:
        """Sample actions, one per uniform number: (..., K), (...) -> (...)."""
        return distributions.sample_categorical(self.log_probabilities(vector), noise)

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

    def policy(self, outputs: Tensor) -> Tensor:
        """The log-probability of each action."""
        return self.log_probabilities(self.activate(outputs))

    def entropy_terms(self, outputs: Tensor) -> Tensor:
        """P log p of each action."""
        log_probabilities = self.policy(outputs)
        return log_probabilities.exp() * log_probabilities

    def mode(self, answer: Tensor) -> Tensor:
        """The most probable action."""
        return answer.argmax(-1)

    def family(self, agents: int) -> distributions.ActionFamily:
        """Categorical actions, each agent's drawn with a number of its own."""
        return TeamActions(agents) if agents else distributions.CategoricalActions()


class ContinuousVectors:
    """Vectors that are the actions, each component from -1 to 1; Gaussian noise explores. See `ActionVectors`."""

    def __init__(self, size: int, deviation: float) -> None:
        """`deviation`: of the noise."""
        self.count, self._deviation = size, deviation
        self.noise_shape: tuple[int, ...] = (size,)

    def activate(self, outputs: Tensor) -> Tensor:
        """The action for an actor's outputs, in fp32."""
        return torch.tanh(outputs.float())

    def explore(self, uniform: Tensor) -> Tensor:
        """An action from anywhere within the bounds."""
        return 2.0 * uniform - 1.0

    def noise(self, seed: int, env: Tensor, step: Tensor, number: Tensor) -> Tensor:
        """(T, E, A, K) standard normal numbers."""
        return random.normal(seed, "action", env, step, number)

    def sample(self, vector: Tensor, noise: Tensor) -> Tensor:
        """The action with noise, within the bounds."""
        return (vector + self._deviation * noise).clamp(-1.0, 1.0)

    def replay_column(self, agents: int) -> Column:
        """The actions, as numbers."""
        return Column((agents, self.count))

    def to_replay(self, vector: Tensor, action: Tensor) -> Tensor:
        """The action that was taken, with its noise: the critic learns the value of that one."""
        return action

    def from_replay(self, stored: Tensor) -> Tensor:
        """The stored action."""
        return stored

    def critic_input(self, outputs: Tensor) -> Tensor:
        """The action."""
        return self.activate(outputs)

    def policy(self, outputs: Tensor) -> Tensor:
        """The action."""
        return self.activate(outputs)

    def entropy_terms(self, outputs: Tensor) -> Tensor:
        """Zeros: the policy is deterministic."""
        return torch.zeros_like(outputs, dtype=torch.float32)

    def mode(self, answer: Tensor) -> Tensor:
        """The action itself."""
        return answer

    def family(self, agents: int) -> distributions.ActionFamily:
        """Actions with the noise of training."""
        return NoisyActions(self.count, self._deviation, agents)


class NoisyActions(distributions.GaussianActions):
    """Continuous actions (..., K) that a network puts out directly; samples add noise of a fixed deviation."""

    def __init__(self, size: int, deviation: float, agents: int) -> None:
        """`agents` 0 = one agent, without an axis."""
        super().__init__(size)
        self._deviation, self._agents = deviation, agents

    def noise(self, seed: int, index: Tensor, clock: Tensor, purpose: str = "action") -> Tensor:
        """(T, E, A, K) standard normal numbers, or (T, E, K) without an axis of agents."""
        if not self._agents:
            return super().noise(seed, index, clock, purpose)
        number = torch.arange(self._agents * self._size, device=index.device).view(self._agents, self._size)
        return random.normal(seed, purpose, index[None, :, None, None], clock[:, None, None, None], number)

    def of(self, outputs: Tensor) -> distributions.Gaussian:
        """The distribution around the network's actions."""
        # A tiny deviation in place of none keeps the logarithm finite.
        deviation = max(self._deviation, 1e-6)
        return distributions.Gaussian(outputs.float(), torch.full_like(outputs, math.log(deviation)))

    def mode(self, outputs: Tensor) -> Tensor:
        """The network's action."""
        return outputs


class TeamActions(distributions.CategoricalActions):
    """Discrete actions of several agents in each environment, each sampled with its own random number."""

    def __init__(self, agents: int) -> None:
        self._agents = agents

    def noise(self, seed: int, index: Tensor, clock: Tensor, purpose: str = "action") -> Tensor:
        """(T, E, A) uniform numbers to sample actions with, for environments `index` (E,) at steps `clock` (T,)."""
        agent = torch.arange(self._agents, device=index.device)
        return random.uniform(seed, purpose, index[None, :, None], clock[:, None, None], agent)
