"""Networks for agents that share their weights. B: samples, A: agents, D: features, K: actions, N: critics.

Actors answer (B, A, D) with (B, A, K). Critics answer (B, A, D) and vectors (B, A, K) with values (N, B, A).
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from lockstep.compute.random import derive_seed


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


class Critic(nn.Module):
    """The value of what an agent does, from its own features or, where it is central, from those of all.

    Asked for actions, it values each of them, and a vector is worth their mean by its weights: linear in the vector, so
    that for chances it is exactly what the agent may expect. Asked for vectors, the own vector is one of its inputs.
    """

    order: Tensor

    def __init__(self, sizes: Sizes, asked_for: str, *, talks: bool, central: bool) -> None:
        super().__init__()
        self._central, self._vectors = central, asked_for == "vectors"
        agents = torch.arange(sizes.agents)
        self.register_buffer("order", (agents[:, None] + agents) % sizes.agents, persistent=False)
        inputs, outputs = (sizes.features + sizes.actions, 1) if self._vectors else (sizes.features, sizes.actions)
        if central:
            inputs += (sizes.agents - 1) * (sizes.features + sizes.actions)
        self.layers = nn.Sequential(*_trunk(inputs, sizes, talks), _head(outputs, sizes, talks))

    def forward(self, observation: Tensor, vector: Tensor) -> Tensor:
        """(B, A) values."""
        seen = [observation]
        if self._central:
            # Its own first. An agent's value teaches only its own vector: the others' are as they are.
            others = vector.detach()[:, self.order[:, 1:]]
            seen = [observation[:, self.order].flatten(2), others.flatten(2)]
        if self._vectors:
            return self.layers(torch.cat((*seen, vector), -1)).squeeze(-1).float()
        return (self.layers(torch.cat(seen, -1)).float() * vector).sum(-1)


class Critics(nn.ModuleList):
    """Several critics with weights of their own, asked together."""

    def forward(self, observation: Tensor, vector: Tensor) -> Tensor:
        """(N, B, A) values."""
        return torch.stack([critic(observation, vector) for critic in self])


def build_networks(algo: str, sizes: Sizes, seed: int, asked_for: str = "actions") -> tuple[nn.Module, nn.Module]:
    """The actor and the critics of an algorithm with their initial weights, the same on every rank.

    `asked_for`: whether critics value "actions" or "vectors".
    """
    talks, central = algo == "bicnet", algo == "maddpg"
    outputs = _head(sizes.actions, sizes, talks)
    actor = nn.Sequential(*_trunk(sizes.features, sizes, talks), outputs)
    critics = Critics([Critic(sizes, asked_for, talks=talks, central=central) for _ in range(sizes.critics)])
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
