"""The two losses of TD-MPC2, each a module that DDP can wrap.

H: horizon, B: samples, A: action size, Z: latent features, N: value functions, F: hidden features.

A network that a loss only uses (policy and target in the world model's loss, the values in the policy's) is held in a
tuple, so that it is not registered in the module: its weights are neither exchanged nor given a gradient here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.algorithms.tdmpc2.model.layers import Ensemble, run
from lockstep.algorithms.tdmpc2.model.networks import TDMPC2Model, joined
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings
from lockstep.rl.target_networks import view_of

Metrics = dict[str, Tensor]
Compile = Callable[[Any], Any]


@dataclass
class Batch:
    """Replayed sequences and their random numbers, in tensors that are filled in place for recorded graphs."""

    observation: Tensor
    """(H + 1, B, ...)"""
    action: Tensor
    """(H, B, A)"""
    reward: Tensor
    """(H, B)"""
    terminated: Tensor
    """(H, B) 1 where the episode ended by the rules, else 0."""
    task: Tensor | None
    """(B,) task numbers; None if there is one task."""
    target_noise: Tensor
    """(H, B, A) standard normal."""
    policy_noise: Tensor
    """(H + 1, B, A)"""
    target_pair: Tensor
    """(2,) the value functions whose minimum is the target."""
    policy_pair: Tensor
    """(2,) the value functions whose mean the policy maximises."""
    values_kept: Tensor | None
    """(N, H x B, F) dropout factors; None without dropout."""
    policy_kept: Tensor | None
    """(2, (H + 1) x B, F)"""
    latents: Tensor
    """(H + 1, B, Z) predicted latent states, which the world model's loss leaves here for the policy's."""
    share: float
    """1 / samples of the global batch, which turns the sums of cohorts into global means."""
    first: int
    """Position of this cohort's first sample in the global batch."""


class WorldLoss(nn.Module):
    """The world model's prediction errors: latent states, rewards, values and terminations."""

    def __init__(
        self, model: TDMPC2Model, settings: TDMPC2Settings, discount: Tensor | float, compiled: Compile = lambda f: f
    ) -> None:
        """`discount`: a number, or (tasks,) one for each task."""
        super().__init__()
        self.world = model.world
        self._used = (model,)  # a tuple: see the top of the file
        self._settings, self._discount = settings, discount
        self._evaluate = compiled(self._evaluated)

    def forward(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """The cohort's share of the global loss, and of each metric."""
        loss, metrics, latents = self._evaluate(batch)
        batch.latents.copy_(latents)
        return loss, metrics

    def _evaluated(self, batch: Batch) -> tuple[Tensor, Metrics, Tensor]:
        (model,), settings = self._used, self._settings
        task = self.world.embed(batch.task)
        following, target = self._targets(batch)
        latent = self.world.encode(batch.observation[0], task)
        states = [latent]
        # Only the first observation is encoded: the dynamics must predict all later states from their own predictions.
        for action in batch.action.unbind(0):
            latent = self.world.next(latent, action, task)
            states.append(latent)
        latents = torch.stack(states)
        before = joined(latents[:-1], task, batch.action)
        rho = settings.rho ** torch.arange(len(before), device=before.device).unsqueeze(1)
        # A mean over the horizon as well as over the samples.
        share = batch.share / len(before)

        # All N value functions learn, from one target.
        values = run(self.world.values.stack(), before.flatten(0, 1), batch.values_kept).unflatten(1, before.shape[:2])
        errors = {
            "consistency": (latents[1:] - following).square().mean(-1),
            "reward": model.bins.cross_entropy(self.world.reward(before), batch.reward),
            "value": model.bins.cross_entropy(values, target).mean(0),
        }
        parts = {name: (error * rho).sum() * share for name, error in errors.items()}
        metrics = {}
        if self.world.termination is not None:
            logit = self.world.termination_logit(latents[1:], task)
            parts["termination"] = F.binary_cross_entropy_with_logits(logit, batch.terminated, reduction="sum") * share
            metrics = _termination_metrics(logit[-1].detach(), batch)
        # The keys of `parts` name the settings of their weights: consistency_coef, reward_coef and so on.
        loss = torch.stack([getattr(settings, f"{name}_coef") * part for name, part in parts.items()]).sum()
        metrics |= {f"{name}_loss": part.detach() for name, part in parts.items()}
        return loss, metrics | {"total_loss": loss.detach()}, latents.detach()

    @torch.no_grad()
    def _targets(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The encoded next observations (H, B, Z), and the value targets of each state and action (H, B)."""
        (model,) = self._used
        task, mask = self.world.embed(batch.task), model.mask_of(batch.task)
        # Targets are constants: gradients flow through the predictions only.
        following = self.world.encode(batch.observation[1:], task)
        action = model.policy.act(following, task, mask, batch.target_noise)
        inputs = joined(following, task, action)
        logits = run(model.target.stack(batch.target_pair), inputs.flatten(0, 1))
        # The minimum of two value functions: an overestimate of only one of them does not raise the target.
        value = model.bins.expected(logits).amin(0).view_as(batch.reward)
        discount = self._discount if isinstance(self._discount, float) else self._discount[batch.task]
        return following, batch.reward + discount * (1.0 - batch.terminated) * value


def _termination_metrics(logit: Tensor, batch: Batch) -> Metrics:
    """Shares of sequences that ended, that were predicted to end, and both: enough for precision and recall."""
    # Only a sequence's last step can end its episode.
    ended, predicted = batch.terminated[-1], (torch.sigmoid(logit) > 0.5).float()
    counts = {"rate": ended, "foretold": predicted, "foretold_rightly": ended * predicted}
    return {f"termination_{name}": count.sum() * batch.share for name, count in counts.items()}


class PolicyLoss(nn.Module):
    """Minus the value of the policy prior's actions, divided by the value scale, minus the entropy bonus."""

    def __init__(self, model: TDMPC2Model, settings: TDMPC2Settings, compiled: Compile = lambda f: f) -> None:
        super().__init__()
        self.policy = model.policy
        values = view_of(model.world.values)
        assert isinstance(values, Ensemble)
        self._used = (model, values)
        self._settings = settings
        self._evaluate = compiled(self._evaluated)

    def forward(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """The cohort's share of the global loss, and of each metric."""
        return self._evaluate(batch)

    def _evaluated(self, batch: Batch) -> tuple[Tensor, Metrics]:
        model, _ = self._used
        task, mask = self._task_and_mask(batch)
        choice = self.policy.choose(batch.latents, task, mask, batch.policy_noise)
        value = self._value(batch.latents, task, choice.action, batch.policy_pair, batch.policy_kept)
        rho = self._settings.rho ** torch.arange(len(value), device=value.device).unsqueeze(1)
        share = batch.share / len(value)
        # Scaled values: the entropy coefficient then suits tasks with small and large rewards.
        worth = self._settings.entropy_coef * choice.scaled_entropy + value / model.value_scale
        loss = -(worth * rho).sum() * share
        metrics = {
            "pi_loss": loss.detach(),
            "pi_entropy": choice.entropy.detach().sum() * share,
            "pi_scaled_entropy": choice.scaled_entropy.detach().sum() * share,
        }
        return loss, metrics

    @torch.no_grad()
    def first_values(self, batch: Batch) -> Tensor:
        """(B,) values of the policy's actions in the first states, from which the value scale is computed."""
        task, mask = self._task_and_mask(batch)
        latent = batch.latents[0]
        action = self.policy.act(latent, task, mask, batch.policy_noise[0])
        # The factors of the first step, which come first in the flattened (H + 1) x B.
        kept = None if batch.policy_kept is None else batch.policy_kept[:, : len(latent)]
        return self._value(latent, task, action, batch.policy_pair, kept)

    def _task_and_mask(self, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        model, _ = self._used
        task = model.world.embed(batch.task)
        # The embeddings belong to the world model: the policy's loss does not train them.
        return None if task is None else task.detach(), model.mask_of(batch.task)

    def _value(self, latent: Tensor, task: Tensor | None, action: Tensor, pair: Tensor, kept: Tensor | None) -> Tensor:
        """The mean of two value functions: (...)."""
        model, values = self._used
        inputs = joined(latent, task, action)
        logits = run(values.stack(pair), inputs.flatten(0, -2), kept)
        return model.bins.expected(logits).mean(0).view(inputs.shape[:-1])
