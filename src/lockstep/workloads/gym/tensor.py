"""Batched tensor environments from outside, as a problem to learn. E: environments.

Such an environment is a class or function of (index, seed): `index` (E,) holds the number of each environment in the
whole run, on the device that its tensors should be on. It has `observation_shape`, `action_count` (discrete) or
`action_dim` (continuous, -1 to 1), and the methods of `lockstep.VectorEnv`; `step` may return a tuple instead of a
`Transition`: (observation, reward, terminated, truncated[, final observation]).
"""

from typing import Any

import torch
from torch import Tensor

from lockstep.envs.env_sources import creating, thing_of
from lockstep.envs.failures import REMEDY
from lockstep.envs.spaces import Actions, Continuous, Discrete
from lockstep.envs.vector_env import Transition, failures_of
from lockstep.errors import LockstepError, RunFailed, UserError
from lockstep.rl.problem import EnvProblem
from lockstep.workloads.gym.settings import GymSettings


class TensorEnv:
    """Somebody's batched environment, with its results checked and in the form that learners expect."""

    def __init__(self, source: str, env: Any, index: Tensor) -> None:
        self._source, self._env, self._index = source, env, index
        self.count = len(index)
        self.observation_shape: tuple[int, ...] = tuple(_needed(source, env, "observation_shape"))
        self._device = index.device

    def reset(self) -> Tensor:
        """Start a new episode everywhere; returns the (E, ...) observation."""
        with failures_of(self._index, "reset"):
            found = self._env.reset()
        # Gymnasium's convention is (observation, info).
        return self._checked("observation", found[0] if isinstance(found, tuple) else found, self.observation_shape)

    def step(self, action: Tensor) -> Transition:
        """Advance every environment by one action."""
        with failures_of(self._index, "step"):
            found = self._env.step(action)
        if not isinstance(found, Transition):
            if not isinstance(found, tuple) or len(found) not in (4, 5):
                raise self._wrong(
                    f"`step` returned {type(found).__name__}; allowed: a Transition, or a tuple of 4 or 5"
                )
            found = Transition(*(value if isinstance(value, Tensor) else None for value in found))  # type: ignore[arg-type]
        self._checked("observation", found.observation, self.observation_shape)
        if found.final_observation is not None:
            self._checked("final observation", found.final_observation, self.observation_shape)
        for name in ("terminated", "truncated"):
            self._checked(name, getattr(found, name), ())
        found.reward = self._checked("reward", found.reward, ()).to(torch.float32)
        if found.final_observation is None:
            self._refuse_truncation(found.truncated)
        return found

    def state(self) -> dict[str, Tensor]:
        """What the environment saves; nothing if it cannot."""
        if not resumes(self._env):
            return {}
        with failures_of(self._index, "state"):
            return self._env.state()

    def load(self, state: dict[str, Tensor]) -> Tensor:
        """Restore what `state` returned; an environment that cannot starts new episodes."""
        if not resumes(self._env):
            return self.reset()
        with failures_of(self._index, "load"):
            found = self._env.load(state)
        return self._checked("observation", found, self.observation_shape)

    def _refuse_truncation(self, truncated: Tensor) -> None:
        # Reading a flag waits for a GPU, so it is read on the host only; `lockstep check` looks on every device.
        if self._device.type == "cpu" and bool(truncated.any()):
            raise self._wrong("an episode was truncated without a final observation, from which its value is estimated")

    def _checked(self, name: str, value: Any, shape: tuple[int, ...]) -> Tensor:
        expected = (self.count, *shape)
        if not isinstance(value, Tensor) or tuple(value.shape) != expected:
            found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise self._wrong(f"{name} has {found}; expected is a tensor of shape {expected}")
        if self._device.type == "cpu" and value.is_floating_point() and not bool(value.isfinite().all()):
            row = int((~value.isfinite()).nonzero()[0, 0])
            problem = f"environment {int(self._index[row])}: its {name} is not a finite number"
            raise RunFailed(f"{problem}; {REMEDY}")
        return value

    def _wrong(self, problem: str) -> UserError:
        return UserError(f"{self._source}: {problem}")


def resumes(env: Any) -> bool:
    """Whether an environment saves and restores its own state."""
    return callable(getattr(env, "state", None)) and callable(getattr(env, "load", None))


def tensor_problem(settings: GymSettings, device: torch.device) -> EnvProblem:
    """The environments of a class or function of (index, seed)."""
    source, make, arguments = settings.env_id, thing_of(settings.env_id), settings.arguments()

    def environments(index: Tensor, seed: int) -> TensorEnv:
        index = index.to(device)
        return TensorEnv(source, made(index, seed), index)

    def made(index: Tensor, seed: int) -> Any:
        # Too little memory on a GPU is dealt with by the launcher.
        with creating(source, passing=(LockstepError, torch.OutOfMemoryError)):
            return make(index=index, seed=seed, **arguments)

    sample = made(torch.zeros(1, dtype=torch.int64, device=device), 0)
    return EnvProblem(
        name="gym",
        observation_shape=tuple(_needed(source, sample, "observation_shape")),
        actions=_actions(source, sample),
        make_env=environments,
        # A step is recorded as a CUDA graph only if its author says that it can be.
        hosted=not getattr(sample, "recordable", False),
        restarts=not resumes(sample),
    )


def _actions(source: str, env: Any) -> Actions:
    count, size = getattr(env, "action_count", None), getattr(env, "action_dim", None)
    if (count is None) == (size is None):
        raise UserError(f"{source}: needs either `action_count` (discrete actions) or `action_dim` (continuous ones)")
    return Discrete(int(count)) if count is not None else Continuous(int(size))  # type: ignore[arg-type]


def _needed(source: str, env: Any, name: str) -> Any:
    if not hasattr(env, name):
        raise UserError(f"{source}: its environment has no `{name}`")
    return getattr(env, name)
