"""The weights of DDPG: actor, critic, and the target of each. B: samples, A: agents, K: actions, N: critics."""

from torch import Tensor, nn

from lockstep.algorithms.ddpg.actions import Vectors
from lockstep.algorithms.ddpg.config import DDPGConfig
from lockstep.rl.target_networks import follow, target_of


def vectors_of(config: DDPGConfig, action_count: int) -> Vectors:
    """How an actor's outputs become actions in this configuration."""
    return Vectors(config.output_activation, action_count, executed=config.remember == "action")


class DDPGModel(nn.Module):
    """An actor (observation -> (B, A, K)) and critics (observation, vectors -> (N, B, A)) with their targets."""

    def __init__(self, actor: nn.Module, critic: nn.Module, vectors: Vectors) -> None:
        super().__init__()
        self.actor, self.critic = actor, critic
        self.target_actor, self.target_critic = target_of(actor), target_of(critic)
        self._vectors = vectors

    def forward(self, observation: Tensor) -> tuple[Tensor]:
        """Logarithms of the chances of every action, (B, A, K)."""
        return (self._vectors.log_chances(self._vectors.of(self.actor(observation))),)

    def follow(self, tau: float) -> None:
        """Let the targets follow."""
        follow(self.target_actor, self.actor, tau)
        follow(self.target_critic, self.critic, tau)
