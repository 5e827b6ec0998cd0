"""A policy network together with its recurrent state, if it has one. E: environments."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from lockstep.compute.lanewise import Lanewise

Memory = tuple[Tensor, ...]
"""The recurrent state, each tensor with E first; zeros at the start of an episode."""


class RecurrentPolicy(Protocol):
    """A policy with a memory. One without is a plain module: observation (E, ...) -> (logits (E, A), value (E,))."""

    def first_memory(self, count: int, device: torch.device) -> Memory:
        """The memory of `count` environments before their first step: zeros."""

    def __call__(self, observation: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Memory]:
        """Logits (E, A), value (E,) and the memory after one step."""

    def sequence(self, observation: Tensor, memory: Memory, keep: Tensor) -> tuple[Tensor, ...]:
        """Logits (T, B, A) and values (T, B) of whole sequences (T, B, ...), the same as step by step.

        memory: before the first step, with B first. keep (T, B): 0.0 where a step is the first of an episode, so that
        the memory is reset before it, else 1.0. May also return forecasts (T, B, K).
        """


class StatefulPolicy:
    """A policy that acts in E environments and keeps the memory of each, if its network has one."""

    def __init__(
        self, network: nn.Module, count: int, device: torch.device, cohorts: int = 1, compiled: bool = False
    ) -> None:
        """`cohorts`: equal groups of environments, in order, each with the bits it has alone. `compiled`: by torch."""
        self._network = network
        first = getattr(network, "first_memory", None)
        self.memory: Memory = first(count, device) if first is not None else ()
        self._answers = Lanewise(self.ask, network, cohorts, device, compiled)

    def begin(self, observation: Tensor) -> None:
        """Start a rollout at these observations."""
        self._answers.begin(observation, *self.memory)

    def act(self, observation: Tensor) -> Sequence[Tensor]:
        """Logits and values for the current observation, or what a network without values returns.

        Advances the memory.
        """
        answers = self._answers(observation, *self.memory)
        if not self.memory:
            return answers
        logits, value, *memory = answers
        self.remember(memory)
        return logits, value

    def remember(self, memory: Sequence[Tensor]) -> None:
        """Replace the memory, in place: a recorded graph reads and writes fixed addresses."""
        for kept, new in zip(self.memory, memory, strict=True):
            kept.copy_(new)

    def value(self, observation: Tensor) -> Tensor:
        """Values of the current observation; the memory does not change."""
        return self._answers(observation, *self.memory)[1]

    def ask(self, observation: Tensor, *memory: Tensor) -> Sequence[Tensor]:
        """Logits, values and the memory afterwards, for any number of rows with their memory."""
        if not memory:
            answers: Sequence[Tensor] = self._network(observation)
            return answers
        logits, value, after = self._network(observation, memory)
        return logits, value, *after

    def forget(self, ended: Tensor | None = None) -> None:
        """Reset the memory of environments whose episodes ended (E,), or of all."""
        for kept in self.memory:
            if ended is None:
                kept.zero_()
            else:
                kept.masked_fill_(ended.view(-1, *[1] * (kept.ndim - 1)), 0.0)

    def state(self) -> dict[str, Tensor]:
        """The memory, each tensor with E first."""
        return {f"memory.{number}": kept for number, kept in enumerate(self.memory)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned; other names are ignored."""
        for name, kept in self.state().items():
            kept.copy_(state[name])
