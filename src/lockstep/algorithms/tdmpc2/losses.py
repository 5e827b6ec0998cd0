"""The two losses of TD-MPC2, each a module whose forward the replicas watch.

H: horizon, B: samples, A: numbers in an action, Z: latent features, N: value functions, F: hidden features.

A network that a loss only looks through (policy and target under the world model's loss, the values under the
policy's) is held in a tuple, so that it is no part of the module: its weights are neither exchanged nor trained here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.algorithms.tdmpc2.layers import Ensemble, run
from lockstep.algorithms.tdmpc2.model import TDMPC2Model, joined
from lockstep.rl.target_networks import view_of

Metrics = dict[str, Tensor]
Compile = Callable[[Any], Any]


@dataclass
class Batch:
    """Sequences of a memory and the random numbers that go with them, in memory that stays where it is."""

    observation: Tensor
    """(H + 1, B, ...)"""
    action: Tensor
    """(H, B, A)"""
    reward: Tensor
    """(H, B)"""
    terminated: Tensor
    """(H, B) one where the episode ended by the rules, else zero."""
    task: Tensor | None
    """(B,) which task, where there are several."""
    target_noise: Tensor
    """(H, B, A) standard normal."""
    policy_noise: Tensor
    """(H + 1, B, A)"""
    target_pair: Tensor
    """(2,) the value functions of which the lower is believed."""
    policy_pair: Tensor
    """(2,) the value functions whose mean the policy raises."""
    values_kept: Tensor | None
    """(N, H x B, F) factors of dropout; None where there is none."""
    policy_kept: Tensor | None
    """(2, (H + 1) x B, F)"""
    latents: Tensor
    """(H + 1, B, Z) what the world model foresaw: left here by its loss for the policy's."""
    share: float
    """1 / samples of the world's batch: what makes sums of cohorts global means."""
    first: int
    """Number of this cohort's first sample among those of the world's batch."""


@dataclass(frozen=True)
class Weights:
    """How much each part counts."""

    consistency: float = 20.0
    reward: float = 0.1
    value: float = 0.1
    termination: float = 1.0
    rho: float = 0.5
    """What each further step into the future counts less."""
    entropy: float = 1e-4


class WorldLoss(nn.Module):
    """How well the world model foresees what happened: latent states, rewards, values and ends of episodes."""

    def __init__(
        self, model: TDMPC2Model, weights: Weights, discount: Tensor | float, compiled: Compile = lambda f: f
    ) -> None:
        """`discount`: of the one task, or of each (tasks,)."""
        super().__init__()
        self.world = model.world
        self._looked_through = (model,)
        self._weights, self._discount = weights, discount
        self._evaluate = compiled(self._evaluated)

    def forward(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """The cohort's share of the global loss, and its shares of what is worth watching."""
        loss, metrics, latents = self._evaluate(batch)
        batch.latents.copy_(latents)
        return loss, metrics

    def _evaluated(self, batch: Batch) -> tuple[Tensor, Metrics, Tensor]:
        (model,), weights = self._looked_through, self._weights
        task = self.world.embed(batch.task)
        following, goal = self._goals(batch)
        latent = self.world.encode(batch.observation[0], task)
        states = [latent]
        for action in batch.action.unbind(0):
            latent = self.world.next(latent, action, task)
            states.append(latent)
        latents = torch.stack(states)
        before = joined(latents[:-1], task, batch.action)
        rho = weights.rho ** torch.arange(len(before), device=before.device).unsqueeze(1)
        share = batch.share / len(before)

        values = run(self.world.values.stack(), before.flatten(0, 1), batch.values_kept).unflatten(1, before.shape[:2])
        errors = {
            "consistency": (latents[1:] - following).square().mean(-1),
            "reward": model.bins.cross_entropy(self.world.reward(before), batch.reward),
            "value": model.bins.cross_entropy(values, goal).mean(0),
        }
        parts = {name: (error * rho).sum() * share for name, error in errors.items()}
        metrics = {}
        if self.world.termination is not None:
            logit = self.world.termination_logit(latents[1:], task)
            parts["termination"] = F.binary_cross_entropy_with_logits(logit, batch.terminated, reduction="sum") * share
            metrics = _termination_metrics(logit[-1].detach(), batch)
        loss = torch.stack([getattr(weights, name) * part for name, part in parts.items()]).sum()
        metrics |= {f"{name}_loss": part.detach() for name, part in parts.items()}
        return loss, metrics | {"total_loss": loss.detach()}, latents.detach()

    @torch.no_grad()
    def _goals(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Where the sequences really led to (H, B, Z), and what each state and action was worth (H, B)."""
        (model,) = self._looked_through
        task, mask = self.world.embed(batch.task), model.mask_of(batch.task)
        following = self.world.encode(batch.observation[1:], task)
        action = model.policy.act(following, task, mask, batch.target_noise)
        inputs = joined(following, task, action)
        logits = run(model.target.stack(batch.target_pair), inputs.flatten(0, 1))
        # Of two value functions the more sceptical: the largest errors of each are not believed.
        value = model.bins.expected(logits).amin(0).view_as(batch.reward)
        discount = self._discount if isinstance(self._discount, float) else self._discount[batch.task]
        return following, batch.reward + discount * (1.0 - batch.terminated) * value


def _termination_metrics(logit: Tensor, batch: Batch) -> Metrics:
    """Shares of sequences that ended, that were foretold to end, and both: enough for precision and recall."""
    ended, foretold = batch.terminated[-1], (torch.sigmoid(logit) > 0.5).float()
    counts = {"rate": ended, "foretold": foretold, "foretold_rightly": ended * foretold}
    return {f"termination_{name}": count.sum() * batch.share for name, count in counts.items()}


class PolicyLoss(nn.Module):
    """What the values think of the policy prior's actions, in units of their own scale, and its entropy."""

    def __init__(self, model: TDMPC2Model, weights: Weights, compiled: Compile = lambda f: f) -> None:
        super().__init__()
        self.policy = model.policy
        values = view_of(model.world.values)
        assert isinstance(values, Ensemble)
        self._looked_through = (model, values)
        self._weights = weights
        self._evaluate = compiled(self._evaluated)

    def forward(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """The cohort's share of the global loss, and its shares of what is worth watching."""
        return self._evaluate(batch)

    def _evaluated(self, batch: Batch) -> tuple[Tensor, Metrics]:
        model, _ = self._looked_through
        task, mask = self._about(batch)
        choice = self.policy.choose(batch.latents, task, mask, batch.policy_noise)
        value = self._judge(batch.latents, task, choice.action, batch.policy_pair, batch.policy_kept)
        rho = self._weights.rho ** torch.arange(len(value), device=value.device).unsqueeze(1)
        share = batch.share / len(value)
        worth = self._weights.entropy * choice.scaled_entropy + value / model.value_scale
        loss = -(worth * rho).sum() * share
        metrics = {
            "pi_loss": loss.detach(),
            "pi_entropy": choice.entropy.detach().sum() * share,
            "pi_scaled_entropy": choice.scaled_entropy.detach().sum() * share,
        }
        return loss, metrics

    @torch.no_grad()
    def first_values(self, batch: Batch) -> Tensor:
        """What the policy's first actions are worth, (B,): what the scale of the values is taken from."""
        task, mask = self._about(batch)
        latent = batch.latents[0]
        action = self.policy.act(latent, task, mask, batch.policy_noise[0])
        kept = None if batch.policy_kept is None else batch.policy_kept[:, : len(latent)]
        return self._judge(latent, task, action, batch.policy_pair, kept)

    def _about(self, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        model, _ = self._looked_through
        task = model.world.embed(batch.task)
        return None if task is None else task.detach(), model.mask_of(batch.task)

    def _judge(self, latent: Tensor, task: Tensor | None, action: Tensor, pair: Tensor, kept: Tensor | None) -> Tensor:
        """The mean of two value functions: (...)."""
        model, values = self._looked_through
        inputs = joined(latent, task, action)
        logits = run(values.stack(pair), inputs.flatten(0, -2), kept)
        return model.bins.expected(logits).mean(0).view(inputs.shape[:-1])
