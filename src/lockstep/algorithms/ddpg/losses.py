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
    share: float | Tensor
    """1 / (samples of the global batch x agents): the cohorts' sums times this add up to global means.

    If agents leave, a tensor (), and only agents count that took part in their step.
    """
    ragged: bool = False
    """Whether agents leave at different times; see `TeamProblem`."""

    def read(self, column: str, later: int = 0) -> Tensor:
        """One column of these steps, or of the steps `later` steps after them."""
        return self.memory.read(column, self.positions, later)

    def observation(self, later: int = 0, column: str = "observation") -> Tensor:
        """The observations, converted to fp32 from the format they are stored in."""
        return self.read(column, later).float()

    def total(self, values: Tensor, trailing: int = 0) -> Tensor:
        """The sum of values (..., B, A, ...) without agents that took no part; `trailing`: axes after the agents'."""
        if not self.ragged:
            return values.sum()
        acted = self.read("acted")
        return (values * acted.view(*acted.shape, *[1] * trailing)).sum()


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
        loss = batch.total((value - target).square()) * (batch.share / value.shape[0])
        metrics = {"critic_loss": loss.detach(), "value": batch.total(value.detach()) * (batch.share / value.shape[0])}
        return loss, metrics

    @torch.no_grad()
    def target(self, batch: Batch) -> Tensor:
        """The critics' target, (B, A); rewards and values after the end of an episode do not count."""
        if batch.ragged:
            return self._ragged_target(batch)
        target = self._estimate(batch.observation(self._n_step))
        # Backwards from the bootstrap value, so that each end of an episode cuts off everything after it.
        for later in reversed(range(self._n_step)):
            continues = (~batch.read("ended", later)).unsqueeze(-1)
            target = batch.read("reward", later) + self._gamma * continues * target
        return target

    def _ragged_target(self, batch: Batch) -> Tensor:
        """The same if agents leave at different times; at the first `cut` the estimate comes from its last observation.

        Then all agents have a shorter return, also those that go on: one estimate serves every agent of a sample.
        """
        following = batch.observation(self._n_step)
        cuts = [batch.read("cut", later) for later in range(self._n_step)]
        for later in reversed(range(self._n_step)):
            where = cuts[later].view(-1, *[1] * (following.ndim - 1))
            following = torch.where(where, batch.observation(later, "final"), following)
        target = estimate = self._estimate(following)
        for later in reversed(range(self._n_step)):
            rest = torch.where(cuts[later].unsqueeze(-1), estimate, target)
            target = batch.read("reward", later) + self._gamma * ~batch.read("terminated", later) * rest
        return target

    def _estimate(self, observation: Tensor) -> Tensor:
        """The target networks' value of observations, (B, A)."""
        actor, critic = self._targets
        # The minimum over critics, as in TD3: one critic's overestimate does not raise the target.
        return critic(observation, self._vectors.critic_input(actor(observation))).amin(0)


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
        entropy = -batch.total(self._vectors.entropy_terms(outputs), trailing=1) * batch.share
        loss = -batch.total(value) * batch.share - self._entropy_coef * entropy
        return loss, {"actor_loss": loss.detach(), "entropy": entropy.detach()}
