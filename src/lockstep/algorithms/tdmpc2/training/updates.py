"""Gradient updates, after which every rank has the same weights."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.model.networks import TDMPC2Model
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings
from lockstep.algorithms.tdmpc2.training.losses import Batch, PolicyLoss, WorldLoss
from lockstep.algorithms.tdmpc2.training.sampler import Sampler
from lockstep.algorithms.tdmpc2.training.totals import Totals
from lockstep.algorithms.tdmpc2.training.value_scale import follow_spread
from lockstep.compute.graphs import Accelerator
from lockstep.compute.optimizer import Optimizer
from lockstep.compute.precision import Precision
from lockstep.distributed.replicas import replicate
from lockstep.distributed.world import World
from lockstep.rl.target_networks import follow

_WORLD_EPS, _POLICY_EPS = 1e-8, 1e-5  # Adam's epsilons, as in the official program


class Training:
    """Each call takes one step of both optimisers with the gradients of `sync_freq` updates.

    On a single rank the whole step is one recorded graph; on several, the parts between collectives are.
    """

    def __init__(
        self,
        settings: TDMPC2Settings,
        world: World,
        model: TDMPC2Model,
        samplers: Sequence[Sampler],
        discount: Tensor | float,
        precision: Precision,
        accelerator: Accelerator,
    ) -> None:
        """`samplers`: one for each cohort of this rank."""
        self._settings, self._world, self._model, self._precision = settings, world, model, precision
        # A recorded step contains its parts, which must then not be recorded themselves.
        part = (lambda function: function) if world.alone else accelerator.record
        recorder = part if accelerator.records else None
        world_loss = WorldLoss(model, settings, discount, accelerator.compile)
        self._policy_loss = PolicyLoss(model, settings, accelerator.compile)
        self.world_replica = replicate(world_loss, world, precision, recorder)
        self.policy_replica = replicate(self._policy_loss, world, precision, recorder)
        self._world_optimizer = self._optimizer("world", _WORLD_EPS, {"world.encoder.": settings.enc_lr_scale})
        self._policy_optimizer = self._optimizer("policy", _POLICY_EPS, {})
        self._batches = self._empty_batches(samplers)
        self._samplers = samplers
        # The number of the next gradient update, on the device, where a recorded step reads and advances it.
        self._number = torch.zeros((), dtype=torch.int64, device=world.device)
        self._next = 0  # the same on the host, which streams the sequences of updates by their numbers
        self.totals = Totals(len(samplers), world.device)
        self._fill: Callable[[], None] = part(self._filled)
        self._move_world: Callable[[], Any] = part(self._world_moved)
        self._move_policy: Callable[[], Any] = part(self._policy_moved)
        self._step = accelerator.record(self._stepped) if world.alone else self._stepped

    def begin(self, updates: int, rate: float) -> None:
        """Start a round after so many gradient updates, with this learning rate."""
        self._number.fill_(updates)
        self._next = updates
        self._world_optimizer.set_rate(rate)
        self._policy_optimizer.set_rate(rate)
        self.totals.clear()

    def step(self) -> None:
        """Take one step. Called by every rank."""
        for sampler, batches in zip(self._samplers, self._batches, strict=True):
            sampler.stream(batches, self._next)
        self._next += self._settings.sync_freq
        self._step()

    def _stepped(self) -> None:
        self._fill()
        world_metrics = self.world_replica.backward(self._batches)
        world_norm, world_finite, first_values = self._move_world()
        # Before the policy's loss, which divides by the scale. Every rank gets the values of the whole batch, so the
        # scale is equal on all ranks to the last bit.
        values = self._world.total(first_values)
        follow_spread(self._model.value_scale, values, self._settings.tau)
        policy_metrics = self.policy_replica.backward(self._batches)
        policy_norm, policy_finite = self._move_policy()
        metrics = world_metrics.beside(policy_metrics)
        self.totals.add(metrics, {"grad_norm": world_norm, "pi_grad_norm": policy_norm}, world_finite & policy_finite)

    def _filled(self) -> None:
        for sampler, batches in zip(self._samplers, self._batches, strict=True):
            for number, batch in enumerate(batches):
                sampler.fill(batch, self._number + number)

    def _world_moved(self) -> tuple[Tensor, Tensor, list[Tensor]]:
        norm, finite = self._world_optimizer.step()
        self._precision.learn_from(finite)
        # As max_norm=1 does in the official program.
        self._model.world.limit_embeddings()
        return norm, finite, [self._first_values(batches) for batches in self._batches]

    def _first_values(self, batches: Sequence[Batch]) -> Tensor:
        """A cohort's first values at their positions in the global batch, else zeros, so that a sum collects all."""
        whole = torch.zeros(len(batches), self._settings.batch_size, device=self._world.device)
        for row, batch in zip(whole, batches, strict=True):
            with self._precision.autocast():
                values = self._policy_loss.first_values(batch)
            row[batch.first : batch.first + len(values)] = values
        return whole.flatten()

    def _policy_moved(self) -> tuple[Tensor, Tensor]:
        """The last part of an update: the target network follows the values."""
        norm, finite = self._policy_optimizer.step()
        self._precision.learn_from(finite)
        follow(self._model.target, self._model.world.values, self._settings.tau)
        self._number += self._settings.sync_freq
        return norm, finite

    def _optimizer(self, part: str, eps: float, scales: dict[str, float]) -> Optimizer:
        named = self._model.get_submodule(part).named_parameters(prefix=part)
        return Optimizer(dict(named), eps, self._settings.grad_clip_norm, scales=scales)

    def _empty_batches(self, samplers: Sequence[Sampler]) -> list[list[Batch]]:
        settings, lanes = self._settings, self._world.lanes
        # Gradients of sync_freq updates are added up, so each counts for its part of their mean.
        share = 1.0 / (settings.batch_size * settings.sync_freq)
        samples = settings.batch_size // lanes.total
        return [
            [sampler.empty(share, cohort.start * samples) for _ in range(settings.sync_freq)]
            for sampler, cohort in zip(samplers, lanes.cohorts, strict=True)
        ]

    def state(self) -> dict[str, Tensor]:
        """The moments of both optimisers."""
        return self._world_optimizer.state() | self._policy_optimizer.state()

    def outline(self) -> dict[str, Tensor]:
        """The names, shapes and types of `state`."""
        return self._world_optimizer.outline() | self._policy_optimizer.outline()

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self._world_optimizer.load(state)
        self._policy_optimizer.load(state)
