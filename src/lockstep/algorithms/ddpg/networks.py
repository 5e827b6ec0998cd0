"""Networks for agents that share their weights. B: samples, A: agents, D: features, K: actions, N: critics.

Actors answer (B, A, D) with (B, A, K). Critics answer (B, A, D) and vectors (B, A, K) with values (N, B, A).
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from lockstep.core.random import derive_seed


@dataclass(frozen=True)
class Sizes:
    """How large the networks are."""

    features: int
    """D."""
    agents: int
    """A."""
    actions: int
    """K."""
    hidden: int = 256
    layers: int = 2
    critics: int = 1
    """N."""


class _AcrossAgents(nn.Module):
    """A bidirectional LSTM that runs along the agents, so that each hears of all others: (B, A, H) -> (B, A, 2H)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)

    def forward(self, features: Tensor) -> Tensor:
        return self.lstm(features)[0]


def _trunk(inputs: int, sizes: Sizes, talks: bool) -> list[nn.Module]:
    """Layers with ReLU; where agents talk, the LSTM sits behind the first."""
    layers: list[nn.Module] = []
    for number, (width, following) in enumerate(pairwise((inputs, *[sizes.hidden] * sizes.layers))):
        layers += [nn.Linear(2 * width if talks and number == 1 else width, following), nn.ReLU()]
        if talks and number == 0:
            layers.append(_AcrossAgents(following))
    return layers


def _head(outputs: int, sizes: Sizes, talks: bool) -> nn.Linear:
    # With a single layer it is the head that follows the LSTM.
    return nn.Linear(sizes.hidden * (2 if talks and sizes.layers == 1 else 1), outputs)


class VectorCritic(nn.Module):
    """The value of an agent's own vector, from its own features."""

    def __init__(self, sizes: Sizes, talks: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_trunk(sizes.features + sizes.actions, sizes, talks), _head(1, sizes, talks))

    def forward(self, observation: Tensor, vector: Tensor) -> Tensor:
        """(B, A) values."""
        return self.layers(torch.cat((observation, vector), -1)).squeeze(-1).float()


class CentralCritic(nn.Module):
    """The value of each of an agent's actions, from the features of all, its own first, and the others' vectors.

    As with `ActionValues` its own vector is worth the mean by its weights. As four of some eight hundred inputs, own
    actions would take so long to be heard that the actor settles on one for good before.
    """

    order: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        agents = torch.arange(sizes.agents)
        self.register_buffer("order", (agents[:, None] + agents) % sizes.agents, persistent=False)
        inputs = sizes.agents * sizes.features + (sizes.agents - 1) * sizes.actions
        trunk = _trunk(inputs, sizes, talks=False)
        self.layers = nn.Sequential(*trunk, _head(sizes.actions, sizes, talks=False))

    def forward(self, observation: Tensor, vector: Tensor) -> Tensor:
        """(B, A) values; an agent's value teaches only its own vector, the others' are as they are."""
        others = vector.detach()[:, self.order[:, 1:]]
        everything = torch.cat((observation[:, self.order].flatten(2), others.flatten(2)), -1)
        return (self.layers(everything).float() * vector).sum(-1)


class ActionValues(nn.Module):
    """The value of each action, from an agent's own features; a vector is worth the mean by its weights.

    The value is linear in the vector: for a vector of chances it is exactly what the agent may expect.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        trunk = _trunk(sizes.features, sizes, talks=False)
        self.layers = nn.Sequential(*trunk, _head(sizes.actions, sizes, talks=False))

    def forward(self, observation: Tensor, vector: Tensor) -> Tensor:
        """(B, A) values."""
        return (self.layers(observation).float() * vector).sum(-1)


class Critics(nn.ModuleList):
    """Several critics with weights of their own, asked together."""

    def forward(self, observation: Tensor, vector: Tensor) -> Tensor:
        """(N, B, A) values."""
        return torch.stack([critic(observation, vector) for critic in self])


def build_networks(algo: str, sizes: Sizes, seed: int) -> tuple[nn.Module, nn.Module]:
    """The actor and the critics of an algorithm with their initial weights, the same on every rank."""
    talks = algo == "bicnet"
    outputs = _head(sizes.actions, sizes, talks)
    actor = nn.Sequential(*_trunk(sizes.features, sizes, talks), outputs)

    def critic() -> nn.Module:
        if algo == "expected":
            return ActionValues(sizes)
        return CentralCritic(sizes) if algo == "maddpg" else VectorCritic(sizes, talks)

    critics = Critics([critic() for _ in range(sizes.critics)])
    generator = torch.Generator().manual_seed(derive_seed(seed, "initial-weights"))
    for network in (actor, critics):
        _initialise(network, generator)
    with torch.no_grad():
        outputs.weight.mul_(0.01)  # At first all actions are nearly alike.
    return actor, critics


def _initialise(network: nn.Module, generator: torch.Generator) -> None:
    """Orthogonal weights and zero biases; an LSTM as PyTorch has it."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.orthogonal_(module.weight, 2.0**0.5, generator=generator)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LSTM):
            bound = module.hidden_size**-0.5
            for weight in module.parameters():
                nn.init.uniform_(weight, -bound, bound, generator=generator)
