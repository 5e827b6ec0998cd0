"""The weights of DDPG: actor, critic, and a target network of each.

B: samples, A: agents, K: discrete actions, or components of a continuous one, N: critics.
"""

from torch import Tensor, nn

from lockstep.algorithms.ddpg.actions import ActionVectors, ContinuousVectors, DiscreteVectors
from lockstep.algorithms.ddpg.networks import TeamNetworks
from lockstep.algorithms.ddpg.settings import DDPGConfig, DDPGSettings
from lockstep.envs.spaces import Continuous
from lockstep.rl.problem import TeamProblem
from lockstep.rl.target_networks import follow, target_of


def action_vectors(settings: DDPGSettings, problem: TeamProblem) -> ActionVectors:
    """The action vectors that the problem's actions and these settings need."""
    if isinstance(problem.actions, Continuous):
        return ContinuousVectors(problem.actions.size, settings.exploration_noise)
    stores_actions = settings.remember == "action"
    return DiscreteVectors(settings.output_activation, problem.actions.count, stores_actions=stores_actions)


class DDPGModel(nn.Module):
    """An actor (observation -> (B, A, K)) and critics (observation, vectors -> (N, B, A)) with their targets."""

    def __init__(self, networks: TeamNetworks, vectors: ActionVectors, alone: bool = False) -> None:
        """`alone`: there is one agent, and callers know nothing of an axis of agents."""
        super().__init__()
        # The parts, not `networks` itself: weights are stored as actor.*, critic.*, target_actor.*, target_critic.*.
        self.actor, self.critic = networks.actor, networks.critic
        self.target_actor, self.target_critic = target_of(networks.actor), target_of(networks.critic)
        self._vectors, self._alone = vectors, alone

    def forward(self, observation: Tensor) -> tuple[Tensor]:
        """Log-probabilities of every discrete action, or continuous actions: (B, A, K); (B, K) of one alone."""
        # A tuple, because players and evaluations take the first output of any model.
        if self._alone:
            return (self._vectors.policy(self.actor(observation.unsqueeze(1))).squeeze(1),)
        return (self._vectors.policy(self.actor(observation)),)

    def follow(self, tau: float) -> None:
        """Move the target networks towards the networks by the fraction `tau` of the difference."""
        follow(self.target_actor, self.actor, tau)
        follow(self.target_critic, self.critic, tau)


def untrained_model(problem: TeamProblem, config: DDPGConfig) -> DDPGModel:
    """The model that a run of this configuration starts with."""
    networks = config.network.build(problem, config)
    assert isinstance(networks, TeamNetworks)
    return DDPGModel(networks, action_vectors(config.algorithm, problem), problem.alone)
