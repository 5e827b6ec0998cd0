"""DeepMind Control's tasks as simulations, with action repeat and a bitwise exact restore. Needs no torch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.envs.simulation import Floats, Outcome, State
from lockstep.workloads.control.rays import RayCamera

# Without this, importing dm_control looks for a display. Rendering workers set the variable first (envs/rendering.py).
os.environ.setdefault("MUJOCO_GL", "disabled")

ACTION_REPEAT = 2
"""Control steps per action, as in the official TD-MPC2."""
_DOMAINS = {"cup": "ball_in_cup"}
"""The suite's names of domains that tasks abbreviate."""
_SIDE_CAMERA = {"quadruped": 2}
"""The official program's camera for a body, if not 0."""


class SuiteSimulation:
    """One task of DeepMind Control."""

    def __init__(self, task: str, renderer: str = "mujoco") -> None:
        """`renderer`: what draws its pictures, as in `ControlSettings.renderer`."""
        self._env = load(task)
        self._physics, self._task = self._env.physics, self._env.task
        spec = self._env.action_spec()
        self._lowest, self._scale = spec.minimum, (spec.maximum - spec.minimum) / 2.0
        self._camera = _SIDE_CAMERA.get(task.partition("-")[0], 0)
        self._renderer = renderer
        self._ray_cameras: dict[tuple[int, int], RayCamera] = {}
        self._observation = np.zeros(0, np.float32)

    def reset(self, seed: int) -> Floats:
        """Start an episode."""
        # The suite takes a seed only when a task is created; creating one for every episode would be slow.
        self._task._random = np.random.RandomState(seed)
        self._env.reset()
        return self._observe()

    def step(self, action: Floats) -> Outcome:
        """Apply the action for two control steps; returns the sum of their rewards."""
        from dm_control.rl.control import PhysicsError

        control = self._lowest + self._scale * (action.astype(np.float64) + 1.0)
        reward = 0.0
        try:
            for _ in range(ACTION_REPEAT):
                # Not Environment.step, which applies the suite's time limit and observes after every control step.
                self._task.before_step(control, self._physics)
                self._physics.step(self._env._n_sub_steps)
                self._task.after_step(self._physics)
                reward += float(self._task.get_reward(self._physics))
        except PhysicsError:
            # The simulation diverged: truncate with the last valid observation instead of ending the run.
            return Outcome(self._observation, 0.0, terminated=False, truncated=True, success=0.0)
        return Outcome(self._observe(), reward, terminated=False, truncated=False, success=0.0)

    def save(self) -> State:
        """MuJoCo's integration state, which includes the solver's warm start."""
        import mujoco

        # MuJoCo's own functions, as older versions of dm_control save positions and velocities only.
        model, data, kind = self._physics.model.ptr, self._physics.data.ptr, _integration_state()
        state = np.empty(mujoco.mj_stateSize(model, kind), np.float64)
        mujoco.mj_getState(model, data, state, kind)
        return state

    def restore(self, seed: int, state: State) -> None:
        """Reset with the episode's seed, which places the targets, then restore the body's state."""
        import mujoco

        self.reset(seed)
        model, data = self._physics.model.ptr, self._physics.data.ptr
        mujoco.mj_setState(model, data, state, _integration_state())
        # Recomputes what derives from positions and velocities, so that the next step continues bitwise exactly.
        mujoco.mj_step1(model, data)

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """A frame from the task's own camera."""
        if self._renderer == "mujoco":
            return self._physics.render(height, width, self._camera)
        if (height, width) not in self._ray_cameras:
            self._ray_cameras[height, width] = RayCamera(self._physics.model.ptr, self._camera, height, width)
        return self._ray_cameras[height, width].draw(self._physics.data.ptr)

    def _observe(self) -> Floats:
        parts = self._task.get_observation(self._physics).values()
        self._observation = np.concatenate([np.ravel(part) for part in parts], dtype=np.float32)
        return self._observation


def load(task: str) -> Any:
    """The dm_control environment of a task."""
    from dm_control import suite

    from lockstep.workloads.control.custom_tasks import MAKERS

    domain, _, rest = task.partition("-")
    with _errors_only():
        if task in MAKERS:
            return MAKERS[task]()
        return suite.load(_DOMAINS.get(domain, domain), rest.replace("-", "_"))


@contextmanager
def _errors_only() -> Iterator[None]:
    """Silence MuJoCo's warnings about the suite's own models, which a user can do nothing about."""
    from absl import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _integration_state() -> int:
    import mujoco

    return mujoco.mjtState.mjSTATE_INTEGRATION.value
