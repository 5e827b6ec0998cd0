"""Networks that the agents of a team share. B: samples, A: agents, D: features, K: actions, N: critics.

Actors map observations (B, A, D) to outputs (B, A, K); critics map observations (B, A, D) and action vectors (B, A, K)
to values (N, B, A).
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
    """A bidirectional LSTM along the agents, so that each knows about all others: (B, A, H) -> (B, A, 2H)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)

    def forward(self, features: Tensor) -> Tensor:
        return self.lstm(features)[0]


def _trunk(inputs: int, sizes: Sizes, communicates: bool) -> list[nn.Module]:
    """Linear layers with ReLU; where agents communicate, the LSTM follows the first."""
    layers: list[nn.Module] = []
    for number, (width, following) in enumerate(pairwise((inputs, *[sizes.hidden] * sizes.layers))):
        # The LSTM runs both ways, so what follows it is twice as wide.
        layers += [nn.Linear(2 * width if communicates and number == 1 else width, following), nn.ReLU()]
        if communicates and number == 0:
            layers.append(_AcrossAgents(following))
    return layers


def _head(outputs: int, sizes: Sizes, communicates: bool) -> nn.Linear:
    # With a single hidden layer it is the head that follows the LSTM.
    return nn.Linear(sizes.hidden * (2 if communicates and sizes.layers == 1 else 1), outputs)


class Critic(nn.Module):
    """The value of an agent's action, from its own features or, where the critic is central, from those of all agents.

    values="actions": it outputs a value for each action, and an action vector is worth their weighted sum. That is
    linear in the vector, so for probabilities it is exactly the expected value.
    values="vectors": the agent's own vector is an input.
    """

    order: Tensor

    def __init__(self, sizes: Sizes, values: str, *, communicates: bool, central: bool) -> None:
        super().__init__()
        self._central, self._vectors = central, values == "vectors"
        # Row a: the agents in cyclic order from a on. Not stored: it follows from the number of agents.
        agents = torch.arange(sizes.agents)
        self.register_buffer("order", (agents[:, None] + agents) % sizes.agents, persistent=False)
        inputs, outputs = (sizes.features + sizes.actions, 1) if self._vectors else (sizes.features, sizes.actions)
        if central:
            inputs += (sizes.agents - 1) * (sizes.features + sizes.actions)
        self.layers = nn.Sequential(*_trunk(inputs, sizes, communicates), _head(outputs, sizes, communicates))

    def forward(self, observation: Tensor, vector: Tensor) -> Tensor:
        """(B, A) values."""
        seen = [observation]
        if self._central:
            # The agent itself comes first. The others' vectors are detached: a value trains its own agent only.
            others = vector.detach()[:, self.order[:, 1:]]
            seen = [observation[:, self.order].flatten(2), others.flatten(2)]
        if self._vectors:
            return self.layers(torch.cat((*seen, vector), -1)).squeeze(-1).float()
        return (self.layers(torch.cat(seen, -1)).float() * vector).sum(-1)


class Critics(nn.ModuleList):
    """Several critics with weights of their own, evaluated together."""

    def forward(self, observation: Tensor, vector: Tensor) -> Tensor:
        """(N, B, A) values."""
        return torch.stack([critic(observation, vector) for critic in self])


class TeamNetworks(nn.Module):
    """What DDPG trains: an actor and critics, of the shapes above."""

    def __init__(self, actor: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.actor, self.critic = actor, critic


def build_networks(algo: str, sizes: Sizes, seed: int, values: str = "actions") -> TeamNetworks:
    """The networks of an algorithm with their initial weights, the same on every rank.

    `values`: whether critics value "actions" or "vectors".
    """
    communicates, central = algo == "bicnet", algo == "maddpg"
    outputs = _head(sizes.actions, sizes, communicates)
    actor = nn.Sequential(*_trunk(sizes.features, sizes, communicates), outputs)
    critics = Critics([Critic(sizes, values, communicates=communicates, central=central) for _ in range(sizes.critics)])
    generator = torch.Generator().manual_seed(derive_seed(seed, "initial-weights"))
    for network in (actor, critics):
        _initialise(network, generator)
    with torch.no_grad():
        # The first policy is nearly uniform, so that early experience covers all actions.
        outputs.weight.mul_(0.01)
    return TeamNetworks(actor, critics)


def _initialise(network: nn.Module, generator: torch.Generator) -> None:
    """Orthogonal weights and zero biases; an LSTM as PyTorch initialises it, but from our generator."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.orthogonal_(module.weight, 2.0**0.5, generator=generator)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LSTM):
            bound = module.hidden_size**-0.5
            for weight in module.parameters():
                nn.init.uniform_(weight, -bound, bound, generator=generator)
