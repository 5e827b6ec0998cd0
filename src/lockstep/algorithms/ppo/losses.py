"""The losses that PPO optimises, each a module that DDP can wrap. B: samples of a micro-batch.

For a recurrent network, samples come as whole sequences: T steps of S environments, B = T x S, time first.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.algorithms.ppo.surrogate import METRICS, Samples, Weights, surrogate
from lockstep.compute.dropout import DropoutWords
from lockstep.compute.lane_axis import rows_at
from lockstep.rl.distributions import ActionFamily
from lockstep.rl.problem import Forecast


@dataclass
class Sequences:
    """How a rollout is divided into sequences, and the recurrent state at their starts."""

    length: int
    """T."""
    width: int
    """Environments of the rollout: the distance between two steps of one environment in it."""
    memory: tuple[Tensor, ...]
    """The recurrent state at the start of each sequence, sequences and environments as one axis."""


@dataclass
class Minibatch:
    """Some samples of a rollout, read inside the loss so that gathering them is part of a recorded graph."""

    rollout: dict[str, Tensor]
    """The columns of a cohort's rollout that learning reads, T and E as one axis."""
    index: Tensor
    """(B,) positions of the samples; with sequences (S,) positions of their first steps."""
    moments: Tensor
    """(2,) mean and standard deviation of the advantages of the global minibatch."""
    share: float | Tensor
    """1 / samples of the global minibatch, which turns the sums of cohorts into global means.

    If some samples are not valid, a tensor (), and only valid ones count.
    """
    sequences: Sequences | None = None
    """For a recurrent network; None = samples are single steps."""
    dropout: DropoutWords | None = None
    """Where the network's dropout layers find their samples' words (column `word`); None = it has no such layers."""

    def read(self, column: str) -> Tensor:
        """One column of the chosen samples (B, ...)."""
        return rows_at(self.rollout[column], self._samples())

    def valid(self) -> Tensor | None:
        """(B,) whether each sample counts; None if all do."""
        return self.read("valid") if "valid" in self.rollout else None

    def ask(self, network: Any) -> tuple[Tensor, ...]:
        """Apply the network to the samples: outputs (B, ...), values (B,), and forecasts if it makes any."""
        with nullcontext() if self.dropout is None else self.dropout.given(self.read("word")):
            return self._answers(network)

    def _answers(self, network: Any) -> tuple[Tensor, ...]:
        observation, cut = self.read("observation"), self.sequences
        if cut is None:
            return network(observation)
        # Position of a sequence's first step -> row of its recurrent state, which exists once per sequence.
        row = self.index // (cut.length * cut.width) * cut.width + self.index % cut.width
        memory = tuple(rows_at(part, row) for part in cut.memory)
        answers = network.sequence(observation.unflatten(0, (cut.length, -1)), memory, self.keep())
        return tuple(answer.flatten(0, 1) for answer in answers)

    def keep(self) -> Tensor:
        """(T, S) 0.0 where a step is the first of an episode, else 1.0."""
        # Always 1.0 at the first step of a sequence: its stored state has already been reset if an episode began there.
        assert self.sequences is not None
        ended = self.read("ended").unflatten(0, (self.sequences.length, -1))
        return torch.cat((torch.ones_like(ended[:1]), ~ended[:-1])).to(torch.float32)

    def _samples(self) -> Tensor:
        if self.sequences is None:
            return self.index
        return steps_of(self.index, self.sequences.length, self.sequences.width).flatten()


def steps_of(first: Tensor, length: int, width: int) -> Tensor:
    """Positions (T, ...) of all steps of the sequences that start at positions `first` (...)."""
    time = torch.arange(length, device=first.device).view(-1, *[1] * first.ndim)
    return first + time * width


class PPOLoss(nn.Module):
    """Clipped surrogate, value error and entropy bonus, and the forecast error if there are forecasts."""

    def __init__(
        self,
        network: nn.Module,
        actions: ActionFamily,
        clip_range: float,
        clip_range_vf: float | None,
        ent_coef: float,
        vf_coef: float,
        normalize_advantage: bool,
        forecast: Forecast | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self._actions = actions
        self._weights = Weights(clip_range, vf_coef, ent_coef)
        self._value_clip = clip_range_vf
        self._normalises = normalize_advantage
        self._forecast = forecast

    def forward(self, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The cohort's share of the global loss, and of each metric."""
        outputs, value, *predicted = batch.ask(self.network)
        distribution = self._actions.of(outputs)
        advantage = batch.read("advantage")
        if self._normalises:
            # Moments of the whole minibatch: a rank's own would make the loss depend on the division into ranks.
            advantage = (advantage - batch.moments[0]) / (batch.moments[1] + 1e-8)
        # In this order: autograd adds up gradients in the order of the calls, and another one would round differently.
        log_probability = distribution.log_probability(batch.read("action"))
        value_error = self._value_error(value, batch)
        # Without a weight the entropy is only reported, so it needs no gradient.
        with torch.set_grad_enabled(self._weights.entropy > 0 and torch.is_grad_enabled()):
            entropy = distribution.entropy()
        loss, sums = surrogate(
            log_probability,
            value_error,
            entropy,
            Samples(batch.read("log_probability"), advantage, batch.share, batch.valid()),
            self._weights,
        )
        metrics = dict(zip(METRICS, sums.unbind(), strict=True))
        if self._forecast is not None:
            error = self._forecast_error(predicted[0], batch, self._forecast) * batch.share
            loss = loss + self._forecast.weight * error
            metrics["forecast_loss"] = error.detach()
        return loss, metrics

    def _forecast_error(self, predicted: Tensor, batch: Minibatch, forecast: Forecast) -> Tensor:
        """The sum of squared errors over all steps whose successor is in the same sequence and episode."""
        assert batch.sequences is not None
        length = batch.sequences.length
        target = forecast.target(batch.read("observation").unflatten(0, (length, -1)))
        error = (predicted.unflatten(0, (length, -1))[:-1] - target[1:]).square().sum(-1)
        return (error * batch.keep()[1:]).sum()

    def _value_error(self, value: Tensor, batch: Minibatch) -> Tensor:
        """Squared errors (B,); with clipping the larger of the clipped and the unclipped one."""
        target = batch.read("target")
        error = (value - target).square()
        if self._value_clip is None:
            return error
        old = batch.read("value")
        clipped = old + (value - old).clamp(-self._value_clip, self._value_clip)
        return torch.maximum(error, (clipped - target).square())


class CloningLoss(nn.Module):
    """Behaviour cloning: negative log-likelihood of the teacher's actions, and the error of the teacher's values."""

    def __init__(self, network: nn.Module, actions: ActionFamily, vf_coef: float) -> None:
        super().__init__()
        self.network = network
        self._actions = actions
        self._value_weight = vf_coef

    def forward(self, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The cohort's share of the global loss, and of each metric."""
        outputs, value, *_ = batch.ask(self.network)
        action = batch.read("action")
        cloning_loss = -self._actions.of(outputs).log_probability(action).sum() * batch.share
        value_loss = 0.5 * (value - batch.read("target")).square().sum() * batch.share
        metrics = {"cloning_loss": cloning_loss}
        if not action.is_floating_point():
            same = self._actions.mode(outputs) == action
            # Of several choices at once, all must be the teacher's.
            metrics["cloning_accuracy"] = (same.all(-1) if same.ndim > 1 else same).float().sum() * batch.share
        metrics["value_loss"] = value_loss
        return cloning_loss + self._value_weight * value_loss, {k: v.detach() for k, v in metrics.items()}
