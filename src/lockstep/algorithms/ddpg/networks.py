"""Networks that the agents of a team share. B: samples, A: agents, D: features, K: actions, N: critics.

Actors map observations (B, A, D) to outputs (B, A, K); critics map observations (B, A, D) and action vectors (B, A, K)
to values (N, B, A). Images (B, A, C, H, W) are turned into features first.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from lockstep.compute.random import derive_seed


@dataclass(frozen=True)
class Sizes:
    """Sizes of the networks."""

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
    image: tuple[int, int, int] | None = None
    """(C, H, W) if agents see images of bytes, which each network turns into D features; None = they see features."""


class _AcrossAgents(nn.Module):
    """A bidirectional LSTM along the agents, so that each knows of the others: (B, A, H) -> (B, A, 2H)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)

    def forward(self, features: Tensor) -> Tensor:
        return self.lstm(features)[0]


class _Eyes(nn.Module):
    """Convolutions that turn each agent's image into features: (B, A, C, H, W) -> (B, A, D)."""

    def __init__(self, image: tuple[int, int, int], features: int) -> None:
        super().__init__()
        channels, height, width = image
        layers: list[nn.Module] = []
        for wide in (16, 32, 32):
            # Small kernels with padding, so that an image of any size and proportion fits.
            layers += [nn.Conv2d(channels, wide, 3, stride=2, padding=1), nn.ReLU()]
            channels, height, width = wide, (height + 1) // 2, (width + 1) // 2
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * width, features), nn.ReLU())

    def forward(self, image: Tensor) -> Tensor:
        # Bytes from 0 to 255 become numbers from 0 to 1.
        return self.layers(image.flatten(0, 1).float() / 255).unflatten(0, image.shape[:2])


def _eyes(sizes: Sizes) -> list[nn.Module]:
    """The layers before all others."""
    return [] if sizes.image is None else [_Eyes(sizes.image, sizes.features)]


def _trunk(inputs: int, sizes: Sizes, communicates: bool) -> list[nn.Module]:
    """Linear layers with ReLU; if agents communicate, an LSTM follows the first."""
    layers: list[nn.Module] = []
    for number, (width, following) in enumerate(pairwise((inputs, *[sizes.hidden] * sizes.layers))):
        # The LSTM is bidirectional, so the layer after it has twice as many inputs.
        layers += [nn.Linear(2 * width if communicates and number == 1 else width, following), nn.ReLU()]
        if communicates and number == 0:
            layers.append(_AcrossAgents(following))
    return layers


def _head(outputs: int, sizes: Sizes, communicates: bool) -> nn.Linear:
    # With a single hidden layer, the head is the layer after the LSTM.
    return nn.Linear(sizes.hidden * (2 if communicates and sizes.layers == 1 else 1), outputs)


class Critic(nn.Module):
    """The value of an agent's action, from its own features or, for a central critic, from those of all agents.

    values="actions": the network outputs one value per action; the value of a vector is their weighted sum. That is
    linear in the vector, so for probabilities it is exactly the expected value.
    values="vectors": the agent's own vector is an input of the network.
    """

    order: Tensor

    def __init__(self, sizes: Sizes, values: str, *, communicates: bool, central: bool) -> None:
        super().__init__()
        self._central, self._vectors = central, values == "vectors"
        # (A, A) row a: the agents in cyclic order, starting with a. Not saved: it follows from the number of agents.
        agents = torch.arange(sizes.agents)
        self.register_buffer("order", (agents[:, None] + agents) % sizes.agents, persistent=False)
        # Vectors as inputs have one value as output; otherwise there is one output per action.
        inputs, outputs = (sizes.features + sizes.actions, 1) if self._vectors else (sizes.features, sizes.actions)
        # A central critic also sees features and vector of each other agent.
        if central:
            inputs += (sizes.agents - 1) * (sizes.features + sizes.actions)
        self.eyes = nn.Sequential(*_eyes(sizes))
        self.layers = nn.Sequential(*_trunk(inputs, sizes, communicates), _head(outputs, sizes, communicates))

    def forward(self, observation: Tensor, vector: Tensor) -> Tensor:
        """(B, A) values."""
        observation = self.eyes(observation)
        inputs = [observation]
        if self._central:
            # The agent itself comes first. The others' vectors are detached: an agent's value trains only that agent.
            others = vector.detach()[:, self.order[:, 1:]]
            inputs = [observation[:, self.order].flatten(2), others.flatten(2)]
        if self._vectors:
            return self.layers(torch.cat((*inputs, vector), -1)).squeeze(-1).float()
        return (self.layers(torch.cat(inputs, -1)).float() * vector).sum(-1)


class Critics(nn.ModuleList):
    """Independent critics, evaluated together."""

    def forward(self, observation: Tensor, vector: Tensor) -> Tensor:
        """(N, B, A) values."""
        return torch.stack([critic(observation, vector) for critic in self])


class TeamNetworks(nn.Module):
    """The networks that DDPG trains: an actor and critics, with the shapes above."""

    def __init__(self, actor: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.actor, self.critic = actor, critic


def build_networks(algo: str, sizes: Sizes, seed: int, values: str = "actions") -> TeamNetworks:
    """The networks of an algorithm with their initial weights, the same on every rank.

    `values`: whether critics value "actions" or "vectors".
    """
    # BiCNet differs from DDPG by its LSTM, MADDPG by its central critic.
    communicates, central = algo == "bicnet", algo == "maddpg"
    outputs = _head(sizes.actions, sizes, communicates)
    actor = nn.Sequential(*_eyes(sizes), *_trunk(sizes.features, sizes, communicates), outputs)
    critics = Critics([Critic(sizes, values, communicates=communicates, central=central) for _ in range(sizes.critics)])
    # A generator on the CPU, seeded by the run: every rank gets the same weights without communication.
    generator = torch.Generator().manual_seed(derive_seed(seed, "initial-weights"))
    for network in (actor, critics):
        _initialise(network, generator)
    with torch.no_grad():
        # Small outputs make the first policy nearly uniform, so that early experience covers all actions.
        outputs.weight.mul_(0.01)
    return TeamNetworks(actor, critics)


def _initialise(network: nn.Module, generator: torch.Generator) -> None:
    """Orthogonal weights with ReLU's gain and zero biases; LSTMs as in PyTorch, but from the given generator."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(module.weight, 2.0**0.5, generator=generator)
            assert module.bias is not None
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LSTM):
            # PyTorch's own bound for LSTMs.
            bound = module.hidden_size**-0.5
            for weight in module.parameters():
                nn.init.uniform_(weight, -bound, bound, generator=generator)
