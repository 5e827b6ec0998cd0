"""The two losses of DDPG, each a module that DDP can wrap. B: samples, A: agents, N: critics.

A network that a loss uses but does not train (the targets in the critic's loss, the critic in the actor's) is held in
a tuple. That hides it from nn.Module, so DDP neither all-reduces its weights nor expects gradients for them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lockstep.algorithms.ddpg.actions import ActionVectors
from lockstep.rl.replay import Replay
from lockstep.rl.target_networks import view_of

Metrics = dict[str, Tensor]


@dataclass
class Batch:
    """Steps of a replay buffer, read inside the loss so that the recorded graph includes gathering them."""

    memory: Replay
    positions: Tensor
    """(B,) flat positions of the steps in the replay buffer."""
    share: float
    """1 / (samples of the global batch x agents): the cohorts' sums times this add up to global means."""

    def read(self, column: str, later: int = 0) -> Tensor:
        """One column of these steps, or of the steps `later` steps after them."""
        return self.memory.read(column, self.positions, later)

    def observation(self, later: int = 0) -> Tensor:
        """The observations, converted to fp32 from the format they are stored in."""
        return self.read("observation", later).float()


class CriticLoss(nn.Module):
    """Squared error of every critic against the n-step return with the target networks' value at its end."""

    def __init__(
        self,
        critic: nn.Module,
        target_actor: nn.Module,
        target_critic: nn.Module,
        vectors: ActionVectors,
        gamma: float,
        n_step: int,
    ) -> None:
        super().__init__()
        self.critic = critic
        self._targets = (target_actor, target_critic)
        self._vectors = vectors
        self._gamma, self._n_step = gamma, n_step

    def forward(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """This cohort's share of the global loss and of each metric."""
        target = self.target(batch)
        value = self.critic(batch.observation(), self._vectors.from_replay(batch.read("action")))
        # value is (N, B, A): the mean over critics, samples and agents.
        loss = (value - target).square().sum() * (batch.share / value.shape[0])
        metrics = {"critic_loss": loss.detach(), "value": value.detach().sum() * (batch.share / value.shape[0])}
        return loss, metrics

    @torch.no_grad()
    def target(self, batch: Batch) -> Tensor:
        """The critics' target, (B, A); rewards and values after the end of an episode do not count."""
        actor, critic = self._targets
        following = batch.observation(self._n_step)
        # The minimum over critics, as in TD3: one critic's overestimate does not raise the target.
        target = critic(following, self._vectors.critic_input(actor(following))).amin(0)
        # Backwards from the bootstrap value, so that each end of an episode cuts off everything after it.
        for later in reversed(range(self._n_step)):
            continues = (~batch.read("ended", later)).unsqueeze(-1)
            target = batch.read("reward", later) + self._gamma * continues * target
        return target


class ActorLoss(nn.Module):
    """The negative value of the actor's vectors, less the entropy bonus."""

    def __init__(self, actor: nn.Module, critic: nn.Module, vectors: ActionVectors, entropy_coef: float) -> None:
        super().__init__()
        self.actor = actor
        # A view that shares the critic's weights: gradients pass through it to the actor, but do not reach the weights.
        self._critic = (view_of(critic),)
        self._vectors = vectors
        self._entropy_coef = entropy_coef

    def forward(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """This cohort's share of the global loss and of each metric."""
        (critic,) = self._critic
        observation = batch.observation()
        outputs = self.actor(observation)
        # The lower value here as well, so that the actor does not exploit one critic's overestimate.
        value = critic(observation, self._vectors.critic_input(outputs)).amin(0)
        log_probabilities = self._vectors.log_probabilities(self._vectors.activate(outputs))
        entropy = -(log_probabilities.exp() * log_probabilities).sum() * batch.share
        loss = -value.sum() * batch.share - self._entropy_coef * entropy
        return loss, {"actor_loss": loss.detach(), "entropy": entropy.detach()}
