"""Simulations on the host as a batch of environments. E: environments, O: observation size, A: action size."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lockstep.compute import random
from lockstep.envs import hosting
from lockstep.envs.hosting import Host, Simulators, Table
from lockstep.envs.vector_env import Transition
from lockstep.envs.worker_pool import RemoteHost, WorkerPool, shared_pool

_AHEAD = 16
"""Episodes of each environment whose seeds are drawn at once: a draw costs the same for one as for a hundred."""


class HostedEnv:
    """A `BatchedEnv` of simulations: observation (E, ...) float32 or uint8, action (E, A).

    An episode's seed is a function of the environment's and the episode's number, so the rank or worker that plays it
    makes no difference.
    """

    def __init__(
        self,
        simulators: Simulators,
        limits: Sequence[int],
        index: Tensor,
        seed: int,
        device: torch.device,
        *,
        workers: int = 1,
        stage: WorkerPool | None = None,
        state_size: int = 0,
        shape: tuple[int, ...] = (),
        restarts: bool = False,
    ) -> None:
        """`index` (E,): each environment's number in the whole run. `limits` (E,): steps after which to truncate.

        `workers`: processes that run the simulations; 1 = run them in this process. `stage`: a separate pool, for
        environments that are rendered. `state_size`: least width of a saved state, so that all states of a run have
        one shape. `shape`: of one observation, if it is not a vector. `restarts`: the simulations cannot be restored,
        so `load` starts their next episodes.
        """
        self.seed, self.device = seed, device
        self.count = len(index)
        self.observation_shape = shape or (simulators.sizes.observation,)
        self.action_dim = simulators.sizes.action
        self.index = index.cpu()
        """(E,) numbers in the whole run, on the host."""
        self._limits, self._state_size, self._restarts = np.array(limits), state_size, restarts
        simulators = replace(simulators, numbers=tuple(self.index.tolist()))
        self._host = _host(simulators, min(workers, self.count), stage)
        self._episode = np.full(self.count, -1)
        self._steps = np.zeros(self.count, np.int64)
        self._earned = np.zeros(self.count)
        self._observation = np.zeros((self.count, simulators.sizes.observation), simulators.sizes.dtype)
        # A worker resets an environment as soon as its episode ends, so it is sent these with every step.
        self._next_seeds = np.zeros(self.count, np.uint32)
        """(E,) seeds of the episodes after the current ones."""
        self._rows = np.arange(self.count)
        # Nothing is drawn yet: the first episode is number 0.
        self._drawn_from = np.full(self.count, -_AHEAD - 1)
        """(E,) the first episode of each environment whose seed has been drawn."""
        self._drawn = np.zeros((self.count, _AHEAD), np.uint32)

    @property
    def episode(self) -> Tensor:
        """(E,) the number of each environment's current episode, on the host."""
        return torch.from_numpy(self._episode.copy())

    @property
    def steps(self) -> Tensor:
        """(E,) length of each episode so far, on the host; 0 before its first action."""
        return torch.from_numpy(self._steps.copy())

    def reset(self) -> Tensor:
        """Start the next episode everywhere; returns the (E, ...) observation."""
        self._begin(np.ones(self.count, np.bool_))
        self._observation = self._host.reset(self._seeds(self._episode))
        return self._seen()

    def step(self, action: Tensor) -> Transition:
        """Advance every environment by one action: (E, A), or (E,) if an action is one number."""
        last = self._steps + 1 >= self._limits
        rows = action.detach().to("cpu", torch.float32).view(self.count, -1).numpy()
        table = self._host.step(rows, self._next_seeds, last)
        results = table["results"]
        self._observation = table["observation"].copy()
        self._steps += 1
        self._earned += results[:, hosting.REWARD]
        # Read before `_begin` resets the counters, as it describes the episodes that have just ended.
        info = {name: torch.from_numpy(value.copy()).to(self.device) for name, value in self._info(results).items()}
        ended = results[:, hosting.TERMINATED] + results[:, hosting.TRUNCATED] > 0
        if ended.any():
            self._begin(ended)
        return self._transition(table, info).to(self.device)

    def _transition(self, table: Table, info: dict[str, Tensor]) -> Transition:
        """The transition that a table (E,) describes, on the host. Its tensors are views of the table."""
        # Reshaped and compared in NumPy, which takes a tenth of torch's time for so few numbers.
        results, shape = table["results"], (self.count, *self.observation_shape)
        return Transition(
            observation=torch.from_numpy(table["observation"].reshape(shape)),
            reward=torch.from_numpy(results[:, hosting.REWARD]),
            terminated=torch.from_numpy(results[:, hosting.TERMINATED] > 0),
            truncated=torch.from_numpy(results[:, hosting.TRUNCATED] > 0),
            final_observation=torch.from_numpy(table["final"].reshape(shape)),
            info=info,
        )

    def state(self) -> dict[str, Tensor]:
        """Everything needed to resume, each tensor with E first."""
        parts = {
            "episode": self._episode,
            "steps": self._steps,
            "earned": self._earned,
            "observation": self._observation,
            "simulation": hosting.packed(self._host.save(), self._state_size),
        }
        return {name: torch.from_numpy(value.copy()) for name, value in parts.items()}

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Restore what `state` returned, or start the next episodes; returns the observation to act on."""
        if self._restarts:
            # The episode numbers alone: what begins now is not what a run began with.
            self._episode = state["episode"].cpu().numpy().copy()
            return self.reset()
        parts = {name: value.cpu().numpy().copy() for name, value in state.items()}
        self._episode, self._steps, self._earned = parts["episode"], parts["steps"], parts["earned"]
        self._next_seeds = self._seeds(self._episode + 1)
        self._host.restore(self._seeds(self._episode), hosting.unpacked(parts["simulation"]))
        self._observation = parts["observation"]
        return self._seen()

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """An image of the first environment, of about that size: (height, width, 3)."""
        return self._host.render(height, width)

    def _seen(self) -> Tensor:
        """The current observation, (E, ...)."""
        return torch.from_numpy(self._observation.copy()).view(-1, *self.observation_shape).to(self.device)

    def _info(self, results: NDArray[np.float32]) -> dict[str, NDArray[np.generic]]:
        """Metrics of finished episodes besides their returns, (E,) each; subclasses override it."""
        return {}

    def _begin(self, where: NDArray[np.bool_]) -> None:
        """Start counting the next episode of the environments where `where` is set."""
        self._episode[where] += 1
        self._steps[where] = 0
        self._earned[where] = 0
        self._next_seeds = self._seeds(self._episode + 1)

    def _seeds(self, episode: NDArray[np.int64]) -> NDArray[np.uint32]:
        """(E,) each environment's seed for an episode; the same on whichever rank the environment is."""
        ahead = episode - self._drawn_from
        if ahead.min() < 0 or ahead.max() >= _AHEAD:
            numbers = torch.from_numpy(episode[:, None] + np.arange(_AHEAD))
            words = random.random_words(self.seed, "episode", self.index[:, None], numbers)[0]
            self._drawn_from, self._drawn = episode.copy(), words.numpy().astype(np.uint32)
            ahead = np.zeros_like(episode)
        return self._drawn[self._rows, ahead]


def _host(simulators: Simulators, workers: int, stage: WorkerPool | None) -> Host | RemoteHost:
    """Opens the simulations, in this process or in workers."""
    if stage is None and workers == 1:
        return Host(simulators)
    return (stage or shared_pool()).host(workers, simulators)
