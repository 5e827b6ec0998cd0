"""The two losses of DDPG, each a module that DDP can wrap. B: samples, A: agents, N: critics.

A network that a loss only uses (the targets in the critic's loss, the critic in the actor's) is held in a tuple, so
that it is not registered in the module: its weights are neither exchanged nor given a gradient here.
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
    """Some steps of a replay buffer, read inside the loss so that gathering them is part of a recorded graph."""

    memory: Replay
    place: Tensor
    """(B,) which steps."""
    share: float
    """1 / (samples of the global batch x agents), which turns the sums of cohorts into global means."""

    def read(self, column: str, later: int = 0) -> Tensor:
        """One column of the chosen steps, or of those so many steps later."""
        return self.memory.read(column, self.place, later)

    def observation(self, later: int = 0) -> Tensor:
        """The observations, in fp32 whatever format they are stored in."""
        return self.read("observation", later).float()


class CriticLoss(nn.Module):
    """The squared error of every critic against n steps of reward and the target networks' value of what follows."""

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
        self._used = (target_actor, target_critic)
        self._vectors = vectors
        self._gamma, self._n_step = gamma, n_step

    def forward(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """The cohort's share of the global loss, and of each metric."""
        target = self.target(batch)
        value = self.critic(batch.observation(), self._vectors.recalled(batch.read("action")))
        loss = (value - target).square().sum() * (batch.share / value.shape[0])
        metrics = {"critic_loss": loss.detach(), "value": value.detach().sum() * (batch.share / value.shape[0])}
        return loss, metrics

    @torch.no_grad()
    def target(self, batch: Batch) -> Tensor:
        """The critics' target, (B, A): nothing is added beyond the end of an episode."""
        actor, critic = self._used
        following = batch.observation(self._n_step)
        # The lowest of several critics: an error that only one of them makes does not raise the target.
        target = critic(following, self._vectors.judged(actor(following))).amin(0)
        for later in reversed(range(self._n_step)):
            going_on = (~batch.read("ended", later)).unsqueeze(-1)
            target = batch.read("reward", later) + self._gamma * going_on * target
        return target


class ActorLoss(nn.Module):
    """Minus the critics' value of the actor's vectors, minus the entropy bonus."""

    def __init__(self, actor: nn.Module, critic: nn.Module, vectors: ActionVectors, entropy_coef: float) -> None:
        super().__init__()
        self.actor = actor
        self._used = (view_of(critic),)
        self._vectors = vectors
        self._entropy_coef = entropy_coef

    def forward(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """The cohort's share of the global loss, and of each metric."""
        (critic,) = self._used
        observation = batch.observation()
        outputs = self.actor(observation)
        value = critic(observation, self._vectors.judged(outputs)).amin(0)
        log_probabilities = self._vectors.log_probabilities(self._vectors.of(outputs))
        entropy = -(log_probabilities.exp() * log_probabilities).sum() * batch.share
        loss = -value.sum() * batch.share - self._entropy_coef * entropy
        return loss, {"actor_loss": loss.detach(), "entropy": entropy.detach()}
