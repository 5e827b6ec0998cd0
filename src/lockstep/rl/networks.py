"""Policy and value networks shared by workloads. B: batch, A: actions."""

import math

import torch
from torch import Tensor, nn

from lockstep.compute.random import derive_seed
from lockstep.rl.normalisers import ObservationNormaliser
from lockstep.rl.problem import Continuous, Discrete, MultiDiscrete


class ActorCritic(nn.Module):
    """A policy head and a value head on shared features: observation -> (logits (B, A), value (B,))."""

    def __init__(self, features: nn.Module, feature_size: int, action_count: int) -> None:
        super().__init__()
        self.features = features
        self.actor = nn.Linear(feature_size, action_count)
        self.critic = nn.Linear(feature_size, 1)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and value, in fp32 also under autocast: losses and sampling need the precision."""
        features = self.features(observation)
        return self.actor(features).float(), self.critic(features).squeeze(-1).float()


_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}


class MLPActorCritic(nn.Module):
    """Policy and value as two separate MLPs: observation (B, ...) -> (outputs (B, A) or (B, 2A), value (B,))."""

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        actions: Discrete | MultiDiscrete | Continuous,
        width: int,
        layers: int,
        activation: str,
        initial_log_std: float,
        seed: int,
        normaliser: ObservationNormaliser | None = None,
    ) -> None:
        """`initial_log_std`: for continuous actions, whose deviation does not depend on the observation."""
        super().__init__()
        inputs, count = math.prod(observation_shape), output_count(actions)
        self.normaliser = normaliser
        self.actor = perceptron(inputs, width, layers, activation, count)
        self.critic = perceptron(inputs, width, layers, activation, 1)
        self.log_std: nn.Parameter | None = None
        if isinstance(actions, Continuous):
            self.log_std = nn.Parameter(torch.full((count,), initial_log_std))
        generator = torch.Generator().manual_seed(derive_seed(seed, "network"))
        initialise(self, last_of(self.actor), last_of(self.critic), generator)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and value, in fp32."""
        flat = observation.flatten(1)
        # Observations may be bytes; linear layers need the parameters' dtype (autocast converts from there).
        seen = flat if flat.is_floating_point() else flat.to(last_of(self.critic).weight.dtype)
        if self.normaliser is not None:
            seen = self.normaliser.within(seen)
        outputs, value = self.actor(seen).float(), self.critic(seen).squeeze(-1).float()
        if self.log_std is not None:
            # Means, then log deviations: the layout that GaussianActions splits.
            outputs = torch.cat((outputs, self.log_std.expand_as(outputs)), dim=-1)
        return outputs, value


def output_count(actions: Discrete | MultiDiscrete | Continuous) -> int:
    """Outputs of the policy's last layer: a logit for each action, or a mean for each component."""
    if isinstance(actions, Discrete):
        return actions.count
    return sum(actions.counts) if isinstance(actions, MultiDiscrete) else actions.size


def hidden_layers(inputs: int, width: int, layers: int, activation: str) -> list[nn.Module]:
    """Linear layers of one width, each followed by its activation."""
    parts: list[nn.Module] = []
    for number in range(layers):
        parts += [nn.Linear(width if number else inputs, width), _ACTIVATIONS[activation]()]
    return parts


def perceptron(inputs: int, width: int, layers: int, activation: str, outputs: int) -> nn.Sequential:
    """Hidden layers and a last linear one; without hidden layers it is linear."""
    last = nn.Linear(width if layers else inputs, outputs)
    return nn.Sequential(*hidden_layers(inputs, width, layers, activation), last)


def last_of(network: nn.Sequential) -> nn.Linear:
    """The last layer of a perceptron."""
    layer = network[-1]
    assert isinstance(layer, nn.Linear)
    return layer


def initialise(network: nn.Module, actor: nn.Linear, critic: nn.Linear, generator: torch.Generator) -> None:
    """Orthogonal weights (gain sqrt 2, actor 0.01, critic 1) and zero biases, as is usual for PPO."""
    # With the actor's small gain the first policy hardly depends on the observation, so all actions are tried early.
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            gain = 0.01 if module is actor else 1.0 if module is critic else 2.0**0.5
            nn.init.orthogonal_(module.weight, gain, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
