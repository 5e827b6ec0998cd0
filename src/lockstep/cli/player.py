"""A trained network as a player: observations in, actions out. B: observations, A: actions."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lockstep.cli.model import Subject, TrainedModel
from lockstep.compute import random
from lockstep.compute.precision import Precision
from lockstep.errors import UserError
from lockstep.rl import distributions
from lockstep.rl.stateful_policy import StatefulPolicy


class Player:
    """Plays with a network that answers (logits (B, A), ...), in the arithmetic of an evaluation.

    Where the network has a memory, the player remembers what it has seen until it is told to forget.
    """

    def __init__(self, subject: Subject, model: TrainedModel, seed: int = 0) -> None:
        """`seed`: where the numbers come from that draw an action, when actions are drawn."""
        self._network = model.learner.model
        self._device = model.world.device
        self._precision = Precision(subject.config.precision, self._device)
        self._seed = seed
        self._draws = 0
        self._policy: StatefulPolicy | None = None
        self._count = 0

    @torch.no_grad()
    def act(self, observation: Tensor, deterministic: bool = True) -> tuple[Tensor, Tensor]:
        """The most probable actions (B,), or drawn ones, and all probabilities (B, A); on the CPU."""
        logits = self._logits(observation)
        log_probabilities = distributions.log_softmax(logits)
        action = logits.argmax(-1) if deterministic else self._draw(log_probabilities)
        return action.cpu(), log_probabilities.exp().cpu()

    def look(self, observation: Tensor) -> Tensor:
        """The probabilities (B, A) of all actions, on the CPU, for observations that are not remembered."""
        policy = self._policy_of(len(observation))
        before = [part.clone() for part in policy.memory]
        probabilities = self.act(observation)[1]
        for part, kept in zip(policy.memory, before, strict=True):
            part.copy_(kept)
        return probabilities

    def forget(self, ended: Tensor | None = None) -> None:
        """Forget the environments whose episodes ended (B,), or all."""
        if self._policy is not None:
            self._policy.forget(None if ended is None else ended.to(self._device))

    def _logits(self, observation: Tensor) -> Tensor:
        policy = self._policy_of(len(observation))
        try:
            with self._precision.autocast():
                return policy.act(observation.to(self._device))[0].float()
        except (RuntimeError, AttributeError) as error:
            what = f"of shape {tuple(observation.shape)}" if isinstance(observation, Tensor) else "of this kind"
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"observations {what}: the network does not take them ({reason})") from error

    def _policy_of(self, count: int) -> StatefulPolicy:
        """What remembers a batch of this size; another size is another batch."""
        if self._policy is None or self._count != count:
            self._policy, self._count = StatefulPolicy(self._network, count, self._device), count
        return self._policy

    def _draw(self, log_probabilities: Tensor) -> Tensor:
        index = torch.arange(len(log_probabilities), device=self._device)
        uniform = random.uniform(self._seed, "play", index, self._draws)
        self._draws += 1
        return distributions.sample_categorical(log_probabilities, uniform)


@dataclass(frozen=True)
class _Moment:
    """Observations by themselves, as environments of which each is at the beginning of an episode."""

    index: Tensor
    steps: Tensor


class PlanningPlayer:
    """Plays with a learner that chooses its actions itself, as by planning; (B, A) numbers instead of a choice."""

    def __init__(self, subject: Subject, model: TrainedModel, seed: int = 0) -> None:
        """`seed`: where the numbers come from that such a learner draws."""
        self._learner: Any = model.learner
        self._seed = seed
        self._draws = 0
        if len(getattr(subject.config, "tasks", ())) > 1:
            raise UserError(
                f"{subject.path}: knows several tasks, and an observation alone does not tell which one is meant; "
                "use `lockstep eval`, `play` or `record`"
            )

    def act(self, observation: Tensor, deterministic: bool = True) -> tuple[Tensor, None]:
        """Actions (B, A), without or with the noise of training; there are no probabilities of theirs."""
        index = torch.arange(len(observation))
        # Without noise the same observation has the same answer, whenever it is asked for.
        act = self._learner.acting(self._seed, explore=not deterministic, clock=0 if deterministic else self._draws)
        self._draws += not deterministic
        try:
            # A copy: the learner answers in the same place every time.
            return act(observation.float().cpu(), _Moment(index, torch.zeros_like(index))).clone(), None
        except RuntimeError as error:
            shape, reason = tuple(observation.shape), str(error).strip().splitlines()[0]
            raise UserError(f"observations of shape {shape}: the model does not take them ({reason})") from error

    def look(self, observation: Tensor) -> None:
        """There are no probabilities."""

    def forget(self, ended: Tensor | None = None) -> None:
        """There is nothing to forget: every observation is planned from anew."""


def player_of(subject: Subject, model: TrainedModel, seed: int = 0) -> Player | PlanningPlayer:
    """Who plays with a trained model."""
    return (PlanningPlayer if hasattr(model.learner, "acting") else Player)(subject, model, seed)
