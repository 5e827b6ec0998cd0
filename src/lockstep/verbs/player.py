"""A trained network as a player: observations in, actions out. B: observations, A: actions."""

import torch
from torch import Tensor

from lockstep.core import random
from lockstep.core.errors import UserError
from lockstep.core.precision import Precision
from lockstep.parts import distributions
from lockstep.verbs.model import Subject, TrainedModel


class Player:
    """Plays with a network that answers (logits (B, A), ...), in the arithmetic of an evaluation."""

    def __init__(self, subject: Subject, model: TrainedModel, seed: int = 0) -> None:
        """`seed`: where the numbers come from that draw an action, when actions are drawn."""
        self._network = model.learner.model
        self._device = model.world.device
        self._precision = Precision(subject.config.precision, self._device)
        self._seed = seed
        self._draws = 0

    @torch.no_grad()
    def act(self, observation: Tensor, deterministic: bool = True) -> tuple[Tensor, Tensor]:
        """The most probable actions (B,), or drawn ones, and all probabilities (B, A); on the CPU."""
        logits = self._logits(observation)
        log_probabilities = distributions.log_softmax(logits)
        action = logits.argmax(-1) if deterministic else self._draw(log_probabilities)
        return action.cpu(), log_probabilities.exp().cpu()

    def _logits(self, observation: Tensor) -> Tensor:
        try:
            with self._precision.autocast():
                return self._network(observation.to(self._device))[0].float()
        except RuntimeError as error:
            shape, reason = tuple(observation.shape), str(error).strip().splitlines()[0]
            raise UserError(f"observations of shape {shape}: the network does not take them ({reason})") from error

    def _draw(self, log_probabilities: Tensor) -> Tensor:
        index = torch.arange(len(log_probabilities), device=self._device)
        uniform = random.uniform(self._seed, "play", index, self._draws)
        self._draws += 1
        return distributions.sample_categorical(log_probabilities, uniform)
