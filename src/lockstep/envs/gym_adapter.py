"""Tensor environments for Gymnasium: a single one, or many as a vector; numpy in, numpy out. E: environments.

A workload declares what is its own in a `GymDeclaration` and subclasses the two classes here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from lockstep.config.fields import nearest, settings_of
from lockstep.envs.vector_env import Transition
from lockstep.errors import UserError

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Rendering = NDArray[np.uint8] | str
SettingsT = TypeVar("SettingsT")


class ManualResetEnv(Protocol):
    """E environments that can be stepped without the automatic reset, so that an episode's last state can be seen."""

    def reset(self) -> Tensor:
        """Restart every episode; returns the (E, ...) observation."""

    def advance(self, action: Tensor) -> Transition:
        """Take one action (E,) int64 each; finished episodes stay as they ended."""

    def restart(self, ended: Tensor) -> Tensor:
        """Restart the episodes in the mask (E,); returns the observation of all environments."""


EnvT = TypeVar("EnvT", bound=ManualResetEnv)


@dataclass(frozen=True)
class GymDeclaration(Generic[EnvT]):
    """What a workload says about its Gymnasium environment."""

    env_id: str
    observation_space: spaces.Space[Any]
    """Of a single environment, float32."""
    actions: tuple[str, ...]
    """The names of the discrete actions, in the order of their numbers."""
    make: Callable[[Tensor, int], EnvT]
    """Creates environments on the CPU from their numbers (E,) and a seed."""
    renderers: Mapping[str, Callable[[EnvT, int], Rendering]]
    """By render mode: a function that draws one environment, given all of them and its index."""

    def known_render_mode(self, mode: str | None) -> str | None:
        """The mode; raises UserError if there is no such mode."""
        if mode is not None and mode not in self.renderers:
            raise UserError(f'{self.env_id} has no render_mode "{mode}"; allowed: {", ".join(self.renderers)}')
        return mode

    def seeded(self, count: int, generator: np.random.Generator) -> EnvT:
        """Create environments with a seed drawn from Gymnasium's generator, which `reset(seed=...)` has seeded."""
        return self.make(torch.arange(count), int(generator.integers(2**63)))

    def started(self, env: EnvT | None) -> EnvT:
        """The environments; raises UserError if `reset` has not been called yet."""
        if env is None:
            raise UserError(f"{self.env_id}: call reset before step or render")
        return env

    def checked_actions(self, actions: NDArray[np.int64], count: int) -> Tensor:
        """The actions (E,) as a tensor; raises UserError if their shape or a value is wrong."""
        actions = np.asarray(actions)
        # Tensor environments index tables with actions: a wrong one would give a wrong result, or crash far from here.
        if actions.shape != (count,) or actions.min() < 0 or actions.max() >= len(self.actions):
            names = ", ".join(f"{number} {name}" for number, name in enumerate(self.actions))
            raise UserError(f"{self.env_id}: actions {actions.tolist()}; allowed: {count} of {names}")
        return torch.as_tensor(actions, dtype=torch.int64)


class TensorGymEnv(gymnasium.Env[Floats, int], Generic[EnvT]):
    """A tensor environment with a single row. Subclasses add the render modes to `metadata`."""

    def __init__(self, declaration: GymDeclaration[EnvT], render_mode: str | None) -> None:
        self.declaration, self.render_mode = declaration, declaration.known_render_mode(render_mode)
        self.observation_space = declaration.observation_space
        self.action_space: spaces.Space[Any] = spaces.Discrete(len(declaration.actions))
        self._env: EnvT | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Start an episode; the same seed starts the same sequence of episodes."""
        super().reset(seed=seed)
        # Without a seed the old object is kept: its random counters have advanced, so the next episode is another one.
        if seed is not None or self._env is None:
            self._env = self.declaration.seeded(1, self.np_random)
        return _array(self._env.reset())[0], {}

    def step(self, action: int) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Take one action; call `reset` after the episode has ended."""
        env = self.declaration.started(self._env)
        done = env.advance(self.declaration.checked_actions(np.asarray([action]), 1))
        # What is undefined (NaN) is left out: Gymnasium compares infos, and NaN is not equal to itself.
        info = {name: value.item() for name, value in done.info.items() if not bool(value.isnan())}
        reward = float(_rewards(done.reward)[0])
        return _array(done.observation)[0], reward, bool(done.terminated), bool(done.truncated), info

    def render(self) -> Rendering | None:  # type: ignore[override]
        """Draw the environment in the render mode; None without one."""
        env = self.declaration.started(self._env)
        return self.declaration.renderers[self.render_mode](env, 0) if self.render_mode else None


class TensorGymVectorEnv(VectorEnv[Floats, NDArray[np.int64], NDArray[Any]], Generic[EnvT]):
    """A tensor environment as a vector: finished episodes restart within the same step (`AutoresetMode.SAME_STEP`).

    Subclasses add `autoreset_mode` and the render modes to `metadata`.
    """

    def __init__(self, declaration: GymDeclaration[EnvT], num_envs: int, render_mode: str | None) -> None:
        self.declaration, self.render_mode = declaration, declaration.known_render_mode(render_mode)
        self.num_envs = num_envs
        self.single_observation_space = declaration.observation_space
        self.single_action_space: spaces.Space[Any] = spaces.Discrete(len(declaration.actions))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._env: EnvT | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Start an episode everywhere; the same seed starts the same sequences of episodes."""
        super().reset(seed=seed)
        if seed is not None or self._env is None:
            self._env = self.declaration.seeded(self.num_envs, self.np_random)
        return _array(self._env.reset()), {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Floats, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take one action each; `final_obs` and `final_info` describe the ends of finished episodes."""
        env = self.declaration.started(self._env)
        done = env.advance(self.declaration.checked_actions(actions, self.num_envs))
        observation, ended = done.observation, done.terminated | done.truncated
        facts = {name: value.numpy() for name, value in done.info.items()}
        # Facts about finished episodes are in `final_info`, as in Gymnasium's own vector environments.
        infos = _with_masks(facts, ~ended.numpy())
        if ended.any():
            infos |= _finals(_array(observation), facts, ended.numpy())
            observation = env.restart(ended)
        return _array(observation), _rewards(done.reward), done.terminated.numpy(), done.truncated.numpy(), infos

    def render(self) -> tuple[Any, ...] | None:
        """Draw every environment in the render mode; None without one."""
        env = self.declaration.started(self._env)
        if self.render_mode is None:
            return None
        draw = self.declaration.renderers[self.render_mode]
        return tuple(draw(env, row) for row in range(self.num_envs))


def vector_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a vector environment, from that of the single one."""
    return {**metadata, "autoreset_mode": AutoresetMode.SAME_STEP}


def settings_from(env_id: str, kind: type[SettingsT], options: Mapping[str, Any]) -> SettingsT:
    """Settings from the keyword arguments of `gymnasium.make`; raises UserError if one is unknown."""
    known = list(settings_of(kind))
    for name in options:
        if name not in known:
            near = nearest(name, known)
            hint = f"the nearest is {near}, " if near else ""
            raise UserError(f'{env_id} has no setting "{name}"; {hint}all: {", ".join(known)}')
    return kind(**options)


def _array(observation: Tensor) -> Floats:
    # Always a copy: the caller may keep it while the environment updates its tensors in place.
    return observation.numpy().astype(np.float32)


def _rewards(reward: Tensor) -> NDArray[np.float64]:
    """Rewards as Gymnasium has them, float64, each through its shortest decimal: -0.01, not -0.009999999776."""
    # Most environments have a few different rewards, and writing a number takes long.
    values, place = np.unique(reward.numpy(), return_inverse=True)
    return values.astype("U32").astype(np.float64)[place]


def _with_masks(values: dict[str, Any], mask: Mask) -> dict[str, Any]:
    """Add a mask `_name` beside each value: the environments it is valid for, as Gymnasium's vector infos do."""
    return {**values, **{f"_{name}": mask.copy() for name in values}}


def _finals(observations: Floats, facts: dict[str, Any], ended: Mask) -> dict[str, Any]:
    """Gymnasium's report on finished episodes: the last observation of each as an object, the rest as arrays."""
    final = np.full(len(ended), None, dtype=object)
    for row in ended.nonzero()[0]:
        final[row] = observations[row]
    return _with_masks({"final_obs": final, "final_info": _with_masks(facts, ended)}, ended)
