"""A Gymnasium vector environment as a batch of environments, whichever way it resets itself. E: environments."""

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv as Vector
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray
from torch import Tensor

from lockstep.compute import random
from lockstep.envs import gym_spaces
from lockstep.envs.failures import REMEDY
from lockstep.envs.gym_spaces import MASK, ActionRows, Observations
from lockstep.envs.gym_state import has_state
from lockstep.envs.vector_env import Transition, failures_of
from lockstep.errors import RunFailed, UserError

Autoreset = Literal["NextStep", "SameStep", "Disabled"]
"""When an ended episode's environment is reset: by the step after, by the same step, or by the caller."""


@dataclass(frozen=True)
class VectorFormats:
    """What is the same for all environments of a vector."""

    source: str
    observations: Observations
    rows: ActionRows
    autoreset: Autoreset
    saves: bool
    """Whether it saves and restores its own state, by methods `state` and `load`."""


def formats_of(env: Any, source: str, shrink: int = 1) -> VectorFormats:
    """Look at a vector environment; UserError if it cannot be used."""
    if not isinstance(env, Vector):
        raise UserError(f"{source}: made {type(env).__name__} for num_envs, which is not a gymnasium.vector.VectorEnv")
    mode = (env.metadata or {}).get("autoreset_mode")
    autoreset = getattr(mode, "value", mode)
    if autoreset not in ("NextStep", "SameStep", "Disabled"):
        raise UserError(
            f'{source}: does not say when it resets ended episodes (metadata["autoreset_mode"] is {mode}); allowed: '
            "NEXT_STEP, SAME_STEP or DISABLED of gymnasium.vector.AutoresetMode"
        )
    _, info = env.reset(seed=0)
    mask = info.get(MASK)
    masked = 0 if mask is None else int(np.asarray(mask).reshape(env.num_envs, -1).shape[1])
    observations = gym_spaces.observations_of(env.single_observation_space, source, masked, shrink)
    rows = gym_spaces.actions_of(env.single_action_space, source)
    return VectorFormats(source, observations, rows, autoreset, has_state(env))  # type: ignore[arg-type]


class GymVectorEnv:
    """A `BatchedEnv` around a vector environment.

    Its first episodes are seeded by the environments' numbers. Where it resets itself, the later ones follow from its
    own random numbers, and may depend on the other environments of the same vector.
    """

    def __init__(self, formats: VectorFormats, env: Any, index: Tensor, seed: int) -> None:
        """`index` (E,): each environment's number in the whole run."""
        self.index, self.count = index.cpu(), len(index)
        if env.num_envs != self.count:
            raise UserError(f"{formats.source}: made {env.num_envs} environments, and was asked for {self.count}")
        self.observation_shape = formats.observations.shape
        self._formats, self._env, self._seed = formats, env, seed
        self._episode = np.full(self.count, -1)
        self._dummy = np.zeros(self.count, np.bool_)
        """(E,) where the next step takes no action, but only resets."""
        self._mask = np.ones((self.count, formats.observations.mask), np.float32)
        self._observation = np.zeros((self.count, formats.observations.size), formats.observations.dtype)
        self._seeds_each: bool | None = None
        """Whether it takes a seed for every environment; some take a single one. None = not tried yet."""
        # Vector environments may have processes of their own.
        weakref.finalize(self, env.close)

    def reset(self) -> Tensor:
        """Start the next episode everywhere; returns the (E, ...) observation."""
        self._begin(np.ones(self.count, np.bool_))
        self._dummy[:] = False
        observation, info = self._seeded_reset()
        self._observation = self._rows(observation, info)
        return self._tensor(self._observation)

    def step(self, action: Tensor) -> Transition:
        """Advance every environment by one action."""
        rows = action.detach().to("cpu", torch.float32).view(self.count, -1).numpy()
        decoded = np.stack([np.asarray(self._formats.rows.decode(row)) for row in rows])
        with failures_of(self.index, "step"):
            observation, reward, terminated, truncated, info = self._env.step(
                decoded.astype(self._env.single_action_space.dtype)
            )
        # What comes back may be the vector environment's own arrays, which it changes in its next step.
        valid = ~self._dummy
        terminated, truncated = (np.array(flags, np.bool_) & valid for flags in (terminated, truncated))
        # An episode that ends by the rules at its time limit is not truncated: nothing would have followed.
        truncated &= ~terminated
        reward = np.where(valid, np.asarray(reward, np.float32), np.float32(0))
        following, final = self._after(self._rows(observation, info), info, terminated | truncated)
        self._refuse_non_finite(reward, "reward")
        self._observation = following
        return Transition(
            observation=self._tensor(following),
            reward=torch.from_numpy(reward),
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(truncated),
            final_observation=self._tensor(final),
            valid=torch.from_numpy(valid) if self._formats.autoreset == "NextStep" else None,
        )

    def _after(self, rows: NDArray[Any], info: Mapping[str, Any], ended: NDArray[np.bool_]) -> tuple[Any, Any]:
        """What to act on next, and the last observations of ended episodes, by the way of resetting."""
        if self._formats.autoreset == "NextStep":
            # The next step begins an episode where one ended now, and takes no action there.
            self._begin(self._dummy)
            self._dummy = ended
            return rows, rows
        if not ended.any():
            return rows, rows
        self._begin(ended)
        if self._formats.autoreset == "SameStep":
            return rows, self._with_final(rows, info, ended)
        observation, fresh = self._seeded_reset(ended)
        following = np.where(ended[:, None], self._rows(observation, fresh), rows)
        return following, rows

    def _with_final(self, rows: NDArray[Any], info: Mapping[str, Any], ended: NDArray[np.bool_]) -> NDArray[Any]:
        found = info.get("final_obs")
        if found is None:
            raise UserError(
                f"{self._formats.source}: resets in the same step, and gave no `final_obs` in the info of a step that "
                "ended an episode; the value of truncated episodes is estimated from it"
            )
        final, mask = rows.copy(), self._formats.observations.mask
        width = final.shape[1] - mask
        for i in np.flatnonzero(ended):
            final[i, :width] = self._formats.observations.encode(_of(found, int(i)))
        return final

    def _seeded_reset(self, where: NDArray[np.bool_] | None = None) -> tuple[Any, Mapping[str, Any]]:
        """Reset all environments, or those `where` it is set, to episodes that their seeds determine."""
        seeds = random.random_words(self._seed, "episode", self.index, torch.from_numpy(self._episode))[0].tolist()
        if self._seeds_each is None:
            try:
                found = self._env.reset(seed=seeds)
                self._seeds_each = True
                return found
            except (Exception, SystemExit):
                # A vector environment with one generator for all takes one seed; if that fails, too, it says why.
                self._seeds_each = False
        options: dict[str, Any] = {} if where is None else {"options": {"reset_mask": where.copy()}}
        first = 0 if where is None else int(np.flatnonzero(where)[0])
        with failures_of(self.index, "reset"):
            return self._env.reset(seed=seeds if self._seeds_each else seeds[first], **options)

    def state(self) -> dict[str, Tensor]:
        """Everything needed to resume, each tensor with E first; episode numbers alone if it saves nothing itself."""
        parts: dict[str, NDArray[Any]] = {"episode": self._episode}
        if self._formats.saves:
            with failures_of(self.index, "state"):
                own = {f"own.{name}": np.asarray(value) for name, value in self._env.unwrapped.state().items()}
            parts |= {"observation": self._observation, "dummy": self._dummy, "mask": self._mask, **own}
        return {name: torch.from_numpy(np.array(value)) for name, value in parts.items()}

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Restore what `state` returned; environments that cannot be restored start their next episode."""
        parts = {name: value.cpu().numpy().copy() for name, value in state.items()}
        self._episode = parts["episode"]
        # A reset in any case: an environment may refuse to be stepped without one.
        seen = self.reset()
        if not self._formats.saves:
            return seen
        self._episode, self._observation = parts["episode"], parts["observation"]
        self._dummy, self._mask = parts["dummy"], parts["mask"]
        own = {name.removeprefix("own."): value for name, value in parts.items() if name.startswith("own.")}
        with failures_of(self.index, "load"):
            self._env.unwrapped.load(own)
        return self._tensor(self._observation)

    def _begin(self, where: NDArray[np.bool_]) -> None:
        self._episode = self._episode + where

    def _rows(self, observation: Any, info: Mapping[str, Any]) -> NDArray[Any]:
        """The observations of all environments as rows, with their action masks if they have any."""
        known, space = self._formats.observations, self._env.single_observation_space
        if isinstance(space, spaces.Box) and known.dtype == np.float32 and not known.parts:
            rows = np.array(observation, np.float32).reshape(self.count, -1)
        else:
            rows = np.stack([known.encode(one) for one in iterate(self._env.observation_space, observation)])
        if known.mask:
            told = info.get(f"_{MASK}", np.full(self.count, MASK in info))
            given = np.asarray(info.get(MASK, self._mask), np.float32).reshape(self.count, -1)
            self._mask = np.where(np.asarray(told)[:, None], given, self._mask)
            rows = np.concatenate((rows, self._mask), 1)
        if rows.shape[1] != self._observation.shape[1]:
            size, expected = rows.shape[1], self._observation.shape[1]
            raise UserError(f"{self._formats.source}: an observation has {size} numbers, and its space says {expected}")
        self._refuse_non_finite(rows, "observation")
        return rows

    def _refuse_non_finite(self, values: NDArray[Any], what: str) -> None:
        if values.dtype.kind != "f" or np.isfinite(values).all():
            return
        number = int(self.index[int(np.argwhere(~np.isfinite(values))[0, 0])])
        raise RunFailed(f"environment {number}: its {what} is not a finite number; {REMEDY}")

    def _tensor(self, rows: NDArray[Any]) -> Tensor:
        return torch.from_numpy(rows.copy()).view(-1, *self.observation_shape)


def _of(batch: Any, i: int) -> Any:
    """One environment's part of what an info holds for all: an array of objects, or a structure of arrays."""
    if isinstance(batch, dict):
        return {name: _of(value, i) for name, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_of(value, i) for value in batch)
    return batch[i]
