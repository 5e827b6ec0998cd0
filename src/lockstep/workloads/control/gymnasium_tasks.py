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

from lockstep.envs.simulation import Floats, Outcome, Replayed
from lockstep.errors import UserError
from lockstep.workloads.control.names import GYMNASIUM_GOALS, gymnasium_id

_DEFAULT_LENGTH = 1000
"""Agent steps of an episode if Gymnasium sets no limit."""
_LENGTHS = {"lunarlander-continuous": 500}
"""Limits of the official TD-MPC2 that differ from Gymnasium's."""
_SETTINGS: dict[str, dict[str, Any]] = {"lunarlander-continuous": {"continuous": True}}


class GymnasiumSimulation(Replayed):
    """One Gymnasium environment, restored by replaying its episode."""

    def __init__(self, task: str, pictures: bool = False) -> None:
        super().__init__()
        self._make = partial(_make, task, **({"render_mode": "rgb_array"} if pictures else {}))
        self._env = self._make()
        # A MuJoCo reset clears all state; others, such as Box2D, carry some over into the next episode, which would
        # make an episode depend on those before it.
        self._reset_is_clean = _uses_mujoco(gymnasium_id(task))
        space = self._env.action_space
        assert isinstance(space, Box)
        self._space = space
        self._goal = GYMNASIUM_GOALS.get(task)
        self._earned = 0.0

    def _begin(self, seed: int) -> Floats:
        self._earned = 0.0
        if not self._reset_is_clean:
            self._env.close()
            self._env = self._make()
        return _flat(self._env.reset(seed=seed)[0])

    def _act(self, action: Floats) -> Outcome:
        # From -1..1 to the environment's own bounds.
        low, high = self._space.low, self._space.high
        scaled = (low + (action + 1.0) / 2.0 * (high - low)).astype(self._space.dtype)
        observation, reward, terminated, truncated, _ = self._env.step(scaled.reshape(self._space.shape))
        self._earned += float(reward)
        # Judged by the return so far; the value at an episode's last step is the one that counts.
        success = float(self._goal is not None and self._earned > self._goal)
        return Outcome(_flat(observation), float(reward), bool(terminated), bool(truncated), success)

    def _action_dim(self) -> int:
        return int(np.prod(self._space.shape))

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """A frame, at the size that the environment itself chooses."""
        return np.asarray(self._env.render(), np.uint8)


@cache
def facts(task: str) -> tuple[int, int, int]:
    """Sizes of an observation and an action, and agent steps of an episode; UserError if the task cannot be used."""
    # Made once per process (see @cache): only the environment itself knows its spaces.
    env = _make(task)
    observations, actions = env.observation_space, env.action_space
    length = gymnasium.spec(gymnasium_id(task)).max_episode_steps or _DEFAULT_LENGTH
    env.close()
    if not isinstance(actions, Box) or not np.issubdtype(actions.dtype, np.floating):
        raise UserError(f"task {task}: its actions are {actions}, not continuous; control needs a Box of numbers")
    if not np.isfinite(actions.low).all() or not np.isfinite(actions.high).all():
        raise UserError(f"task {task}: its actions have no bounds, so they cannot be scaled to -1..1")
    if not isinstance(observations, Box):
        raise UserError(f"task {task}: its observation is {type(observations).__name__}, not a Box of numbers")
    return int(np.prod(observations.shape)), int(np.prod(actions.shape)), _LENGTHS.get(task, length)


def _make(task: str, **settings: Any) -> Any:
    """The environment without its time limit, which HostedEnv applies; UserError if it cannot be made."""
    name = gymnasium_id(task)
    settings |= _SETTINGS.get(task, {})
    try:
        with warnings.catch_warnings(), _without_mujoco_log(name):
            # Gymnasium warns about newer versions of a task; every worker process would repeat it.
            warnings.simplefilter("ignore", DeprecationWarning)
            return gymnasium.make(name, disable_env_checker=True, max_episode_steps=-1, **settings)
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f"task {task}: a package for Gymnasium's {name} is missing: {_first_line(error)}") from error
    except ImportError as error:
        problem = f"Gymnasium's {name} cannot be created ({_first_line(error)})"
        raise UserError(f"task {task}: {problem}; install its dependencies, or use a newer version of it") from error
    except gymnasium.error.Error as error:
        problem = f"Gymnasium has no such environment ({_first_line(error)})"
        raise UserError(f"task {task}: {problem}; use one of its ids, such as Pendulum-v1") from error


def _uses_mujoco(name: str) -> bool:
    return "mujoco" in str(gymnasium.spec(name).entry_point)


@contextmanager
def _without_mujoco_log(name: str) -> Iterator[None]:
    """Drop MuJoCo's warnings about Gymnasium's models: it writes them to a log file in the working directory."""
    if not _uses_mujoco(name):
        yield
        return
    try:
        import mujoco
    except ImportError:  # gymnasium.make reports it
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
