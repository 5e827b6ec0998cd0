"""Learning: from batches to new weights, the same on every rank."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.config import TDMPC2Config
from lockstep.algorithms.tdmpc2.losses import Batch, PolicyLoss, Weights, WorldLoss
from lockstep.algorithms.tdmpc2.model import TDMPC2Model
from lockstep.algorithms.tdmpc2.sampler import Sampler
from lockstep.algorithms.tdmpc2.totals import Totals
from lockstep.algorithms.tdmpc2.value_scale import follow_spread
from lockstep.compute.graphs import Accelerator
from lockstep.compute.optimizer import Optimizer
from lockstep.compute.precision import Precision
from lockstep.distributed.replicas import replicate
from lockstep.distributed.world import World
from lockstep.rl.target_networks import follow

_WORLD_EPS, _POLICY_EPS = 1e-8, 1e-5


def weights_of(config: TDMPC2Config) -> Weights:
    """How much each part of the losses counts in this configuration."""
    return Weights(
        consistency=config.consistency_coef,
        reward=config.reward_coef,
        value=config.value_coef,
        termination=config.termination_coef,
        rho=config.rho,
        entropy=config.entropy_coef,
    )


class Training:
    """One step of both optimisers from the gradients of `sync_freq` updates, as often as it is called.

    Where no other rank takes part, the whole of it is one recorded graph; else the parts between exchanges are.
    """

    def __init__(
        self,
        config: TDMPC2Config,
        world: World,
        model: TDMPC2Model,
        samplers: Sequence[Sampler],
        discount: Tensor | float,
        precision: Precision,
        accelerator: Accelerator,
    ) -> None:
        """`samplers`: one for each cohort of this rank."""
        self._config, self._world, self._model, self._precision = config, world, model, precision
        part = (lambda function: function) if world.alone else accelerator.record
        recorder = part if accelerator.records else None
        world_loss = WorldLoss(model, weights_of(config), discount, accelerator.compile)
        self._policy_loss = PolicyLoss(model, weights_of(config), accelerator.compile)
        self.world_replica = replicate(world_loss, world, precision, recorder)
        self.policy_replica = replicate(self._policy_loss, world, precision, recorder)
        self._world_optimizer = self._optimizer("world", _WORLD_EPS, {"world.encoder.": config.enc_lr_scale})
        self._policy_optimizer = self._optimizer("policy", _POLICY_EPS, {})
        self._batches = self._empty_batches(samplers)
        self._samplers = samplers
        self._number = torch.zeros((), dtype=torch.int64, device=world.device)
        self.totals = Totals(len(samplers), world.device)
        self._fill: Callable[[], None] = part(self._filled)
        self._move_world: Callable[[], Any] = part(self._world_moved)
        self._move_policy: Callable[[], Any] = part(self._policy_moved)
        self._step = accelerator.record(self._stepped) if world.alone else self._stepped

    def begin(self, updates: int, rate: float) -> None:
        """Learn from now on as one does after so many gradient updates, at this rate."""
        self._number.fill_(updates)
        self._world_optimizer.set_rate(rate)
        self._policy_optimizer.set_rate(rate)
        self.totals.clear()

    def step(self) -> None:
        """Learn once. Called by every rank."""
        self._step()

    def _stepped(self) -> None:
        self._fill()
        found = self.world_replica.backward(self._batches)
        world_norm, world_finite, first_values = self._move_world()
        # All ranks see the values of the whole batch: the scale is the world's, to the last bit.
        values = self._world.total(first_values)
        follow_spread(self._model.value_scale, values, self._config.tau)
        found_too = self.policy_replica.backward(self._batches)
        policy_norm, policy_finite = self._move_policy()
        metrics = [one | other for one, other in zip(found, found_too, strict=True)]
        self.totals.add(metrics, {"grad_norm": world_norm, "pi_grad_norm": policy_norm}, world_finite & policy_finite)

    def _filled(self) -> None:
        for sampler, batches in zip(self._samplers, self._batches, strict=True):
            for number, batch in enumerate(batches):
                sampler.fill(batch, self._number + number)

    def _world_moved(self) -> tuple[Tensor, Tensor, list[Tensor]]:
        norm, finite = self._world_optimizer.step()
        self._precision.learn_from(finite)
        self._model.world.limit_embeddings()
        return norm, finite, [self._first_values(batches) for batches in self._batches]

    def _first_values(self, batches: Sequence[Batch]) -> Tensor:
        """A cohort's first values in their places among those of the world's batch, and zeros elsewhere."""
        whole = torch.zeros(len(batches), self._config.batch_size, device=self._world.device)
        for row, batch in zip(whole, batches, strict=True):
            with self._precision.autocast():
                values = self._policy_loss.first_values(batch)
            row[batch.first : batch.first + len(values)] = values
        return whole.flatten()

    def _policy_moved(self) -> tuple[Tensor, Tensor]:
        """The last act of an update: the target follows the values."""
        norm, finite = self._policy_optimizer.step()
        self._precision.learn_from(finite)
        follow(self._model.target, self._model.world.values, self._config.tau)
        self._number += self._config.sync_freq
        return norm, finite

    def _optimizer(self, room: str, eps: float, scales: dict[str, float]) -> Optimizer:
        named = self._model.get_submodule(room).named_parameters(prefix=room)
        return Optimizer(dict(named), eps, self._config.grad_clip_norm, scales=scales)

    def _empty_batches(self, samplers: Sequence[Sampler]) -> list[list[Batch]]:
        config, lanes = self._config, self._world.lanes
        share = 1.0 / (config.batch_size * config.sync_freq)
        samples = config.batch_size // lanes.total
        return [
            [sampler.empty(share, cohort.start * samples) for _ in range(config.sync_freq)]
            for sampler, cohort in zip(samplers, lanes.cohorts, strict=True)
        ]

    def state(self) -> dict[str, Tensor]:
        """Both optimisers' moments."""
        return self._world_optimizer.state() | self._policy_optimizer.state()

    def outline(self) -> dict[str, Tensor]:
        """The same without numbers."""
        return self._world_optimizer.outline() | self._policy_optimizer.outline()

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up a state from `state`."""
        self._world_optimizer.load(state)
        self._policy_optimizer.load(state)
