"""Chooses actions: by planning, or with the policy prior alone. E: environments, H: horizon, A: action size."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2 import noise
from lockstep.algorithms.tdmpc2.model.networks import TDMPC2Model
from lockstep.algorithms.tdmpc2.planning.planner import Planner, draw_noise
from lockstep.compute.host_transfer import Answer, HostTransfer
from lockstep.compute.precision import Precision

Change = Callable[[Any], Any]
"""Records a function as a CUDA graph, or returns it unchanged."""


class Actor:
    """Acts on host observations: `see`, then `decide`, then `action`. Only `action` waits for the device."""

    def __init__(
        self,
        model: TDMPC2Model,
        planner: Planner | None,
        index: Tensor,
        task: Tensor | None,
        seed: int,
        precision: Precision,
        *,
        explores: bool,
        recorded: Change = lambda f: f,
    ) -> None:
        """`planner`: None = the policy prior alone. `index` (E,): the environments' numbers in the whole run.

        `explores`: add noise, as in training.
        """
        self._model, self._planner, self._precision = model, planner, precision
        self._index, self._task, self._seed = index, task, seed
        self._explores = explores
        device, count, spaces = index.device, len(index), model.spaces
        # Without a planner the plans are a placeholder of one step, so that states have the same keys.
        horizon = planner.settings.horizon if planner is not None else 1
        shapes = {"observation": spaces.observation_shape, "continues": (1, 1)}
        self._seen = HostTransfer(count, shapes, device, ("observation",) if spaces.image else ())
        # Buffers that are changed in place: a recorded plan reads and writes fixed addresses.
        self._mean = torch.zeros((count, horizon, spaces.action), device=device)
        self._clock = torch.zeros((), dtype=torch.int64, device=device)
        self._action = torch.zeros((count, spaces.action), device=device)
        self._answer = Answer((count, spaces.action), device)
        self._choose = recorded(self._choose_actions)

    def board(self, index: Tensor, task: Tensor | None) -> None:
        """Switch to other environments (E,), which are at the start of their episodes."""
        # In place: a recorded plan reads these addresses.
        self._index.copy_(index)
        if self._task is not None and task is not None:
            self._task.copy_(task)

    def see(self, observation: Tensor, ended: Tensor | None = None) -> None:
        """Send host observations to the device; where an episode has ended (E,), the last plan is discarded."""
        continues = torch.ones(len(self._index)) if ended is None else ~ended
        self._seen.send(observation=observation, continues=continues)

    def decide(self, clock: int) -> None:
        """Start choosing actions for step `clock`, the counter of the random numbers; returns at once on a GPU."""
        # A tensor, since a recorded plan would keep the value that a Python number had when it was captured.
        self._clock.fill_(clock)
        self._choose()
        self._answer.ask(self._action)

    def action(self) -> Tensor:
        """Wait for the chosen actions, (E, A) on the host."""
        return self._answer.wait()

    @torch.no_grad()
    def _choose_actions(self) -> None:
        observation = self._seen.views["observation"]
        noise = self._drawn()
        with self._precision.autocast():
            if self._planner is None:
                action = self._prior(observation, noise)
            else:
                # Zero at the start of an episode: another episode's plan is no starting point.
                before = self._mean * self._seen.views["continues"]
                action, mean = self._planner.plan(observation, before, noise, self._task, self._explores)
                self._mean.copy_(mean)
        self._action.copy_(action)

    def _drawn(self) -> Any:
        action = self._model.spaces.action
        if self._planner is None:
            # Without exploration the noise is zero, which gives the mean action.
            return noise.normals(self._seed, "act", self._index, self._clock, action) * self._explores
        settings, members = self._planner.settings, self._model.sizes.values
        return draw_noise(self._seed, self._index, self._clock, settings, action, members)

    def _prior(self, observation: Tensor, noise: Tensor) -> Tensor:
        world, mask = self._model.world, self._model.mask_of(self._task)
        task = world.embed(self._task)
        return self._model.policy.act(world.encode(observation, task), task, mask, noise)

    def state(self) -> Tensor:
        """(E, H, A) means that the next plans start from."""
        # Masked as in `_choose_actions`, so that a resumed run starts from the same plans.
        return self._mean * self._seen.views["continues"]

    def load(self, observation: Tensor, mean: Tensor) -> None:
        """Restore what `state` returned, with the current observation."""
        # A run may be resumed with another horizon; then plans start from zero.
        self._mean.copy_(mean if mean.shape == self._mean.shape else torch.zeros_like(self._mean))
        self.see(observation)
