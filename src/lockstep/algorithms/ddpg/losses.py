"""The two losses of DDPG, each a module whose forward the replicas watch. B: samples, A: agents, N: critics.

A network that a loss only looks through (the targets under the critic's loss, the critic under the actor's) is held in
a tuple, so that it is no part of the module: its weights are neither exchanged nor given a gradient here.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lockstep.algorithms.ddpg.actions import Vectors
from lockstep.rl.replay import Replay
from lockstep.rl.target_networks import view_of

Metrics = dict[str, Tensor]


@dataclass
class Batch:
    """Some places of a memory: read inside the loss, so that picking them is part of a recorded graph."""

    memory: Replay
    place: Tensor
    """(B,) which steps."""
    share: float
    """1 / (samples of the world's batch x agents): what makes sums of cohorts global means."""

    def read(self, column: str, later: int = 0) -> Tensor:
        """One column of the chosen steps, or of those so many steps later."""
        return self.memory.read(column, self.place, later)

    def observation(self, later: int = 0) -> Tensor:
        """What was seen then, in fp32 whatever it is remembered in."""
        return self.read("observation", later).float()


class CriticLoss(nn.Module):
    """The squared error of every critic against n steps of reward and the targets' opinion of what follows."""

    def __init__(
        self,
        critic: nn.Module,
        target_actor: nn.Module,
        target_critic: nn.Module,
        vectors: Vectors,
        gamma: float,
        n_step: int,
    ) -> None:
        super().__init__()
        self.critic = critic
        self._looked_through = (target_actor, target_critic)
        self._vectors = vectors
        self._gamma, self._n_step = gamma, n_step

    def forward(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """The cohort's share of the global loss, and its shares of what is worth watching."""
        goal = self.goal(batch)
        value = self.critic(batch.observation(), self._vectors.recalled(batch.read("action")))
        loss = (value - goal).square().sum() * (batch.share / value.shape[0])
        metrics = {"critic_loss": loss.detach(), "value": value.detach().sum() * (batch.share / value.shape[0])}
        return loss, metrics

    @torch.no_grad()
    def goal(self, batch: Batch) -> Tensor:
        """What the critics should say, (B, A): an episode that ends on the way is worth what it has brought."""
        actor, critic = self._looked_through
        following = batch.observation(self._n_step)
        # Of several critics the most sceptical: the largest errors of each are not believed.
        goal = critic(following, self._vectors.judged(actor(following))).amin(0)
        for later in reversed(range(self._n_step)):
            going_on = (~batch.read("ended", later)).unsqueeze(-1)
            goal = batch.read("reward", later) + self._gamma * going_on * goal
        return goal


class ActorLoss(nn.Module):
    """What the critics think of the actor's vectors, to be raised; entropy counts as well where it is asked for."""

    def __init__(self, actor: nn.Module, critic: nn.Module, vectors: Vectors, entropy_coef: float) -> None:
        super().__init__()
        self.actor = actor
        self._looked_through = (view_of(critic),)
        self._vectors = vectors
        self._entropy_coef = entropy_coef

    def forward(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """The cohort's share of the global loss, and its shares of what is worth watching."""
        (critic,) = self._looked_through
        observation = batch.observation()
        outputs = self.actor(observation)
        value = critic(observation, self._vectors.judged(outputs)).amin(0)
        log_chances = self._vectors.log_chances(self._vectors.of(outputs))
        entropy = -(log_chances.exp() * log_chances).sum() * batch.share
        loss = -value.sum() * batch.share - self._entropy_coef * entropy
        return loss, {"actor_loss": loss.detach(), "entropy": entropy.detach()}
