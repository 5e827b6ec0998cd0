"""Gymnasium's environments with continuous actions as tasks. Needs no torch."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from lockstep.envs.env_sources import make_registered, uses_mujoco
from lockstep.envs.gym_simulation import EnvSpec, GymSimulation
from lockstep.envs.simulation import Floats, Observation, Outcome
from lockstep.errors import UserError
from lockstep.workloads.control.names import GYMNASIUM_GOALS, gymnasium_id

_DEFAULT_LENGTH = 1000
"""Agent steps of an episode if Gymnasium sets no limit."""
_LENGTHS = {"lunarlander-continuous": 500}
"""Limits of the official TD-MPC2 that differ from Gymnasium's."""
_SETTINGS: dict[str, dict[str, Any]] = {"lunarlander-continuous": {"continuous": True}}
_NO_LIMIT = 2**62


@dataclass(frozen=True)
class _TaskSpec(EnvSpec):
    """A task, which `source` names; HostedEnv applies the time limit."""

    def make(self, render: bool = False) -> gymnasium.Env[Any, Any]:
        """Create the environment without its own time limit; UserError if it cannot be created."""
        kwargs = {"max_episode_steps": -1, **_SETTINGS.get(self.source, {})}
        return make_registered(gymnasium_id(self.source), kwargs, render, f"task {self.source}", "Pendulum-v1")


def _spec(task: str) -> _TaskSpec:
    # A MuJoCo reset clears all state; others, such as Box2D, carry some over into the next episode, which would make an
    # episode depend on those before it.
    return _TaskSpec(task, fresh=not uses_mujoco(gymnasium_id(task)), longest_replay=_NO_LIMIT)


class GymnasiumSimulation(GymSimulation):
    """One Gymnasium environment, restored by replaying its episode. Its goal, if it has one, is a return."""

    def __init__(self, task: str, pictures: bool = False) -> None:
        super().__init__(_spec(task), pictures)
        self._goal = GYMNASIUM_GOALS.get(task)
        self._earned = 0.0

    def reset(self, seed: int) -> Observation:
        """Start an episode."""
        self._earned = 0.0
        return super().reset(seed)

    def step(self, action: Floats) -> Outcome:
        """Apply one action."""
        done = super().step(action)
        self._earned += done.reward
        # Judged by the return so far; the value at an episode's last step is the one that counts.
        return done._replace(success=float(self._goal is not None and self._earned > self._goal))


@cache
def facts(task: str) -> tuple[int, int, int]:
    """Sizes of an observation and an action, and agent steps of an episode; UserError if the task cannot be used."""
    # Made once per process (see @cache): only the environment itself knows its spaces.
    env = _spec(task).make()
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
