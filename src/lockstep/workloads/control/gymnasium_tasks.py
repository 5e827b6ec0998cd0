"""Gymnasium's environments with continuous actions as simulations. Needs no torch."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from lockstep.errors import UserError
from lockstep.workloads.control.names import GYMNASIUM_GOALS, gymnasium_id
from lockstep.workloads.control.simulation import Floats, Outcome, Replayed

_DEFAULT_LENGTH = 1000
_LENGTHS = {"lunarlander-continuous": 500}
_SETTINGS: dict[str, dict[str, Any]] = {"lunarlander-continuous": {"continuous": True}}


class GymnasiumSimulation(Replayed):
    """One environment of Gymnasium."""

    def __init__(self, task: str, pictures: bool = False) -> None:
        super().__init__()
        self._make = partial(_make, task, **({"render_mode": "rgb_array"} if pictures else {}))
        self._env = self._make()
        # A reset of MuJoCo forgets everything; Box2D, among others, carries something over into the next episode.
        self._forgets = _uses_mujoco(gymnasium_id(task))
        space = self._env.action_space
        assert isinstance(space, Box)
        self._space = space
        self._goal = GYMNASIUM_GOALS.get(task)
        self._earned = 0.0

    def _begin(self, seed: int) -> Floats:
        self._earned = 0.0
        if not self._forgets:
            self._env.close()
            self._env = self._make()
        return _flat(self._env.reset(seed=seed)[0])

    def _act(self, action: Floats) -> Outcome:
        low, high = self._space.low, self._space.high
        scaled = (low + (action + 1.0) / 2.0 * (high - low)).astype(self._space.dtype)
        observation, reward, terminated, truncated, _ = self._env.step(scaled.reshape(self._space.shape))
        self._earned += float(reward)
        success = float(self._goal is not None and self._earned > self._goal)
        return Outcome(_flat(observation), float(reward), bool(terminated), bool(truncated), success)

    def _action_dim(self) -> int:
        return int(np.prod(self._space.shape))

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """A picture in the size of the environment's own choice."""
        return np.asarray(self._env.render(), np.uint8)


@cache
def facts(task: str) -> tuple[int, int, int]:
    """Numbers in an observation and in an action, and agent steps of an episode; UserError where it is of no use."""
    env = _make(task)
    seen, done = env.observation_space, env.action_space
    length = gymnasium.spec(gymnasium_id(task)).max_episode_steps or _DEFAULT_LENGTH
    env.close()
    if not isinstance(done, Box) or not np.issubdtype(done.dtype, np.floating):
        raise UserError(f"task {task}: its actions are {done}, not continuous; control needs a Box of numbers")
    if not np.isfinite(done.low).all() or not np.isfinite(done.high).all():
        raise UserError(f"task {task}: its actions have no bounds, so they cannot be scaled to -1..1")
    if not isinstance(seen, Box):
        raise UserError(f"task {task}: its observation is {type(seen).__name__}, not a Box of numbers")
    return int(np.prod(seen.shape)), int(np.prod(done.shape)), _LENGTHS.get(task, length)


def _make(task: str, **settings: Any) -> Any:
    """The environment without a limit on time, which is kept elsewhere; UserError where there is none."""
    name = gymnasium_id(task)
    settings |= _SETTINGS.get(task, {})
    try:
        with warnings.catch_warnings(), _unremarked(name):
            # That there is a newer version; every process would say so.
            warnings.simplefilter("ignore", DeprecationWarning)
            return gymnasium.make(name, disable_env_checker=True, max_episode_steps=-1, **settings)
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f"task {task}: Gymnasium's {name} needs more: {_first_line(error)}") from error
    except ImportError as error:
        problem = f"Gymnasium's {name} cannot be made here ({_first_line(error)})"
        raise UserError(f"task {task}: {problem}; install what it needs, or use a newer version of it") from error
    except gymnasium.error.Error as error:
        problem = f"Gymnasium has no such environment ({_first_line(error)})"
        raise UserError(f"task {task}: {problem}; use one that it has, as Pendulum-v1") from error


def _uses_mujoco(name: str) -> bool:
    return "mujoco" in str(gymnasium.spec(name).entry_point)


@contextmanager
def _unremarked(name: str) -> Iterator[None]:
    """MuJoCo would leave its remarks on Gymnasium's models in a file, wherever the user happens to be."""
    if not _uses_mujoco(name):
        yield
        return
    try:
        import mujoco
    except ImportError:  # Gymnasium says so itself
        yield
        return
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _flat(observation: Any) -> Floats:
    return np.asarray(observation, np.float32).ravel()
