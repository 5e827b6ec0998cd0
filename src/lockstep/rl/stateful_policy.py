"""A policy network together with what it remembers of the environments that it acts in. E: environments."""

from typing import Protocol

import torch
from torch import Tensor, nn

Memory = tuple[Tensor, ...]
"""What a network carries from step to step, each tensor with E first; all zeros at the start of an episode."""


class RecurrentPolicy(Protocol):
    """A policy with a memory. One without is only called: observation (E, ...) -> (logits (E, A), value (E,))."""

    def first_memory(self, count: int, device: torch.device) -> Memory:
        """What so many environments remember before their first step: zeros."""

    def __call__(self, observation: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Memory]:
        """Logits (E, A), value (E,) and the memory after one step."""

    def sequence(self, observation: Tensor, memory: Memory, keep: Tensor) -> tuple[Tensor, ...]:
        """Logits (T, B, A) and values (T, B) of whole sequences (T, B, ...), as if they were made step by step.

        memory: with B first, from before the first step. keep (T, B): 0.0 where a step is the first of an episode and
        all before it is forgotten, else 1.0. May return more: what the network forecasts, (T, B, K).
        """


class StatefulPolicy:
    """A policy that acts in E environments and remembers each of them, where its network has a memory."""

    def __init__(self, network: nn.Module, count: int, device: torch.device) -> None:
        self._network = network
        first = getattr(network, "first_memory", None)
        self.memory: Memory = first(count, device) if first is not None else ()

    def act(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values for what is seen now, which is remembered from here on."""
        if not self.memory:
            return self._network(observation)
        logits, value, memory = self._network(observation, self.memory)
        for kept, new in zip(self.memory, memory, strict=True):
            kept.copy_(new)
        return logits, value

    def value(self, observation: Tensor) -> Tensor:
        """The values of what is seen now, which is not remembered."""
        return self._network(observation, self.memory)[1] if self.memory else self._network(observation)[1]

    def forget(self, ended: Tensor | None = None) -> None:
        """Forget the environments whose episodes ended (E,), or all."""
        for kept in self.memory:
            if ended is None:
                kept.zero_()
            else:
                kept.masked_fill_(ended.view(-1, *[1] * (kept.ndim - 1)), 0.0)

    def state(self) -> dict[str, Tensor]:
        """What is remembered, each tensor with E first."""
        return {f"memory.{number}": kept for number, kept in enumerate(self.memory)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up a state from `state`; names of others are passed over."""
        for name, kept in self.state().items():
            kept.copy_(state[name])
