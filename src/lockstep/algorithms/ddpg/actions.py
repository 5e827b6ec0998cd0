"""Action vectors: what an actor says, what is remembered of it and what is done. K: actions to choose from."""

from typing import Literal

import torch
from torch import Tensor

from lockstep.rl import distributions
from lockstep.rl.replay import Column

Activation = Literal["softmax", "tanh"]
_LEAST_CHANCE = 1e-6


class Vectors:
    """From an actor's outputs (..., K) to vectors, to the chances of actions, and to what a memory keeps of them."""

    def __init__(self, activation: Activation, count: int, executed: bool) -> None:
        """`executed`: remember the action that was done, instead of the vector that it was drawn from."""
        self.count = count
        self._tanh = activation == "tanh"
        self._executed = executed

    def of(self, outputs: Tensor) -> Tensor:
        """The vector that an actor's outputs stand for, in fp32."""
        outputs = outputs.float()
        return torch.tanh(outputs) if self._tanh else torch.softmax(outputs, -1)

    def exploring(self, uniform: Tensor) -> Tensor:
        """A vector from anywhere in the range, out of K uniform numbers."""
        return 2.0 * uniform - 1.0 if self._tanh else uniform

    def log_chances(self, vector: Tensor) -> Tensor:
        """The logarithms of the chances with which each action is drawn."""
        weight = ((vector + 1.0) / 2.0 if self._tanh else vector).clamp(min=_LEAST_CHANCE)
        return (weight / weight.sum(-1, keepdim=True)).log()

    def choose(self, vector: Tensor, uniform: Tensor) -> Tensor:
        """Draw actions by their chances, from a uniform number each: (..., K), (...) -> (...)."""
        return distributions.sample_categorical(self.log_chances(vector), uniform)

    def column(self, agents: int) -> Column:
        """What a memory keeps of a step's actions."""
        return Column((agents,), torch.uint8) if self._executed else Column((agents, self.count))

    def remembered(self, vector: Tensor, action: Tensor) -> Tensor:
        """What of a step goes into that column."""
        return action if self._executed else vector

    def judged(self, outputs: Tensor) -> Tensor:
        """The vectors (..., K) that a critic is shown for an actor's outputs: chances where it knows what was done."""
        vector = self.of(outputs)
        return self.log_chances(vector).exp() if self._executed else vector

    def recalled(self, kept: Tensor) -> Tensor:
        """The vectors (..., K) that a critic is shown for what a memory kept."""
        if not self._executed:
            return kept
        return (kept.unsqueeze(-1) == torch.arange(self.count, device=kept.device)).float()
