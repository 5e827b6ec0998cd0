"""The losses that PPO optimises, each a module whose forward the replicas watch. B: samples of a micro-batch.

With a network that remembers, samples come as whole sequences: T steps of S environments, B = T x S, time first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.rl import distributions


@dataclass
class Sequences:
    """How a roll-out is cut into sequences, and what was remembered when they began."""

    length: int
    """T."""
    width: int
    """Environments of the roll-out: how far apart two steps of one environment lie in it."""
    memory: tuple[Tensor, ...]
    """What was remembered when each sequence began, sequences and environments as one axis."""


@dataclass
class Minibatch:
    """Some samples of a roll-out: read inside the loss, so that picking them is part of a recorded graph."""

    rollout: dict[str, Tensor]
    """The learning columns of a cohort's roll-out, T and E as one axis."""
    index: Tensor
    """(B,) which samples; (S,) the first sample of which sequences."""
    moments: Tensor
    """(2,) mean and deviation of the advantage over the whole world's minibatch."""
    share: float
    """1 / samples of the world's minibatch: what makes sums of cohorts global means."""
    sequences: Sequences | None = None
    """Set where samples come as sequences."""

    def read(self, column: str) -> Tensor:
        """One column of the chosen samples (B, ...)."""
        return self.rollout[column].index_select(0, self._samples())

    def ask(self, network: Any) -> tuple[Tensor, ...]:
        """What the network says of the samples: logits (B, A), values (B,)."""
        observation, cut = self.read("observation"), self.sequences
        if cut is None:
            return network(observation)
        row = self.index // (cut.length * cut.width) * cut.width + self.index % cut.width
        memory = tuple(part.index_select(0, row) for part in cut.memory)
        answers = network.sequence(observation.unflatten(0, (cut.length, -1)), memory, self.keep())
        return tuple(answer.flatten(0, 1) for answer in answers)

    def keep(self) -> Tensor:
        """(T, S) 0.0 where a step is the first of an episode; a sequence's first step goes by its own memory."""
        assert self.sequences is not None
        ended = self.read("ended").unflatten(0, (self.sequences.length, -1))
        return torch.cat((torch.ones_like(ended[:1]), ~ended[:-1])).to(torch.float32)

    def _samples(self) -> Tensor:
        if self.sequences is None:
            return self.index
        return steps_of(self.index, self.sequences.length, self.sequences.width).flatten()


def steps_of(first: Tensor, length: int, width: int) -> Tensor:
    """Where the steps of sequences lie that begin at `first` (...): (T, ...)."""
    time = torch.arange(length, device=first.device).view(-1, *[1] * first.ndim)
    return first + time * width


@dataclass(frozen=True)
class Forecast:
    """An additional lesson for a network that remembers: to foretell something of the next observation."""

    weight: float
    """Of its squared error, in the loss."""
    target: Callable[[Tensor], Tensor]
    """Reads from an observation (T, S, ...) what the step before it should have foretold, (T, S, K)."""


class PPOLoss(nn.Module):
    """Clipped surrogate, value error and entropy, and the error of forecasts where there are any."""

    def __init__(
        self,
        network: nn.Module,
        clip_range: float,
        clip_range_vf: float | None,
        ent_coef: float,
        vf_coef: float,
        normalize_advantage: bool,
        forecast: Forecast | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self._clip = clip_range
        self._value_clip = clip_range_vf
        self._entropy_weight = ent_coef
        self._value_weight = vf_coef
        self._normalises = normalize_advantage
        self._forecast = forecast

    def forward(self, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The cohort's share of the global loss, and its shares of what is worth watching."""
        logits, value, *foretold = batch.ask(self.network)
        log_probabilities = distributions.log_softmax(logits)
        log_ratio = distributions.chosen(log_probabilities, batch.read("action")) - batch.read("log_probability")
        ratio = log_ratio.exp()
        advantage = batch.read("advantage")
        if self._normalises:
            advantage = (advantage - batch.moments[0]) / (batch.moments[1] + 1e-8)
        policy = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - self._clip, 1 + self._clip))
        error = self._value_error(value, batch)
        entropy = distributions.entropy(log_probabilities)
        share = batch.share
        policy_loss, value_loss, mean_entropy = policy.sum() * share, 0.5 * error.sum() * share, entropy.sum() * share
        loss = policy_loss + self._value_weight * value_loss - self._entropy_weight * mean_entropy
        lessons = {}
        if self._forecast is not None:
            lessons["forecast_loss"] = self._forecast_error(foretold[0], batch, self._forecast) * share
            loss = loss + self._forecast.weight * lessons["forecast_loss"]
        with torch.no_grad():
            metrics = {
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": mean_entropy,
                "approx_kl": ((ratio - 1) - log_ratio).sum() * share,
                "clip_fraction": ((ratio - 1).abs() > self._clip).float().sum() * share,
            }
        return loss, {name: value.detach() for name, value in (metrics | lessons).items()}

    def _forecast_error(self, foretold: Tensor, batch: Minibatch, forecast: Forecast) -> Tensor:
        """The sum of squared errors over all steps whose next one is in the same sequence and episode."""
        assert batch.sequences is not None
        length = batch.sequences.length
        target = forecast.target(batch.read("observation").unflatten(0, (length, -1)))
        error = (foretold.unflatten(0, (length, -1))[:-1] - target[1:]).square().sum(-1)
        return (error * batch.keep()[1:]).sum()

    def _value_error(self, value: Tensor, batch: Minibatch) -> Tensor:
        target = batch.read("target")
        error = (value - target).square()
        if self._value_clip is None:
            return error
        old = batch.read("value")
        clipped = old + (value - old).clamp(-self._value_clip, self._value_clip)
        return torch.maximum(error, (clipped - target).square())


class CloningLoss(nn.Module):
    """Behaviour cloning: the log-likelihood of a teacher's actions, and the value of following it."""

    def __init__(self, network: nn.Module, vf_coef: float) -> None:
        super().__init__()
        self.network = network
        self._value_weight = vf_coef

    def forward(self, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The cohort's share of the global loss and its metrics."""
        logits, value = batch.ask(self.network)
        log_probabilities = distributions.log_softmax(logits)
        action = batch.read("action")
        cloning_loss = -distributions.chosen(log_probabilities, action).sum() * batch.share
        value_loss = 0.5 * (value - batch.read("target")).square().sum() * batch.share
        metrics = {
            "cloning_loss": cloning_loss,
            "cloning_accuracy": (logits.argmax(-1) == action).float().sum() * batch.share,
            "value_loss": value_loss,
        }
        return cloning_loss + self._value_weight * value_loss, {k: v.detach() for k, v in metrics.items()}
