"""Trained policies as functions of tensors, for programs that do not have Lockstep. B: observations."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lockstep.rl.problem import EnvProblem, TeamProblem
from lockstep.rl.stateful_policy import StatefulPolicy
from lockstep.storage.program_file import Program


class _Acts(nn.Module):
    """(observation, memory...) -> (logits, value if there is one, action, memory after the step...)."""

    def __init__(self, network: nn.Module, mode: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.network, self._mode = network, mode

    def forward(self, observation: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        if not memory:
            outputs, *value = self.network(observation)
            return outputs, *value, self._mode(outputs)
        outputs, one_value, after = self.network(observation, memory)
        return outputs, one_value, self._mode(outputs), *after


def policy_program(
    network: nn.Module, mode: Callable[[Tensor], Tensor], problem: EnvProblem | TeamProblem, value: bool
) -> Program:
    """A policy: observations (B, ...) to the network's outputs, values if it has them, and the best actions.

    `mode`: from outputs to the most probable action. A recurrent network's memory goes in and comes out; it is zeros
    when an episode begins.
    """
    count = 2
    device = next(network.parameters()).device
    memory = StatefulPolicy(network, count, device).memory
    names = [f"memory_{number}" for number in range(len(memory))]
    dtype = torch.uint8 if problem.image_bytes else torch.float32
    shape = problem.shown_shape if isinstance(problem, TeamProblem) else problem.observation_shape
    observation = torch.zeros(count, *shape, dtype=dtype)
    return Program(
        _Acts(network, mode),
        {"observation": observation, **{name: part.cpu() for name, part in zip(names, memory, strict=True)}},
        ("logits", *(("value",) if value else ()), "action", *(f"next_{name}" for name in names)),
    )
