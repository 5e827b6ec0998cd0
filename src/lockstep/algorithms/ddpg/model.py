"""The weights of DDPG: actor, critic, and a target network of each. B: samples, A: agents, K: actions, N: critics."""

from torch import Tensor, nn

from lockstep.algorithms.ddpg.actions import ActionVectors
from lockstep.algorithms.ddpg.networks import TeamNetworks
from lockstep.algorithms.ddpg.settings import DDPGConfig, DDPGSettings
from lockstep.rl.problem import TeamProblem
from lockstep.rl.target_networks import follow, target_of


def action_vectors(settings: DDPGSettings, action_count: int) -> ActionVectors:
    """The action vectors that these settings select."""
    return ActionVectors(settings.output_activation, action_count, stores_actions=settings.remember == "action")


class DDPGModel(nn.Module):
    """An actor (observation -> (B, A, K)) and critics (observation, vectors -> (N, B, A)) with their targets."""

    def __init__(self, networks: TeamNetworks, vectors: ActionVectors) -> None:
        super().__init__()
        # The parts, not `networks` itself: weights are stored as actor.*, critic.*, target_actor.*, target_critic.*.
        self.actor, self.critic = networks.actor, networks.critic
        self.target_actor, self.target_critic = target_of(networks.actor), target_of(networks.critic)
        self._vectors = vectors

    def forward(self, observation: Tensor) -> tuple[Tensor]:
        """Log-probabilities of every action, (B, A, K)."""
        # A tuple, because players and evaluations take the first output of any model.
        return (self._vectors.log_probabilities(self._vectors.activate(self.actor(observation))),)

    def follow(self, tau: float) -> None:
        """Move the target networks towards the networks by the fraction `tau` of the difference."""
        follow(self.target_actor, self.actor, tau)
        follow(self.target_critic, self.critic, tau)


def untrained_model(problem: TeamProblem, config: DDPGConfig) -> DDPGModel:
    """The model that a run of this configuration starts with."""
    networks = config.network.build(problem, config)
    assert isinstance(networks, TeamNetworks)
    return DDPGModel(networks, action_vectors(config.algorithm, problem.action_count))
