"""Network bricks shared by workloads."""

import torch
from torch import Tensor, nn


class ActorCritic(nn.Module):
    """A policy and a value on shared features: observation -> (logits (B, A), value (B,))."""

    def __init__(self, features: nn.Module, feature_size: int, action_count: int) -> None:
        super().__init__()
        self.features = features
        self.actor = nn.Linear(feature_size, action_count)
        self.critic = nn.Linear(feature_size, 1)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and value, in fp32."""
        features = self.features(observation)
        return self.actor(features).float(), self.critic(features).squeeze(-1).float()


def initialise(network: nn.Module, actor: nn.Linear, critic: nn.Linear, generator: torch.Generator) -> None:
    """Orthogonal weights (gain sqrt 2, actor 0.01, critic 1), zero biases: the usual start of PPO."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            gain = 0.01 if module is actor else 1.0 if module is critic else 2.0**0.5
            nn.init.orthogonal_(module.weight, gain, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
