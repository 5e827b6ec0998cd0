"""Meta-World's fifty tasks as simulations, if that package is installed. Needs no torch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.envs.simulation import Floats, Outcome, Replayed
from lockstep.errors import UserError
from lockstep.workloads.control.names import METAWORLD_FACTS, METAWORLD_PREFIX

_ACTION_REPEAT = 2  # as in the official TD-MPC2
_WELD = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 5.0)
"""Meta-World's own numbers for the weld by which the hand follows its target."""


class MetaWorldSimulation(Replayed):
    """One task; its goal is part of the observation and is redrawn for every episode."""

    def __init__(self, task: str) -> None:
        super().__init__()
        self._env = _make(task)
        # Meta-World has no public switch for drawing a new goal at every reset, from the seed.
        self._env._freeze_rand_vec = False
        self._env.seeded_rand_vec = True
        self._renderers: dict[tuple[int, int], Any] = {}
        """By the size of a frame: a new one loads all meshes and textures, which takes longer than to draw them."""

    def _begin(self, seed: int) -> Floats:
        self._env.seed(seed)
        observation = np.asarray(self._env.reset()[0], np.float32)
        # The first step after a reset settles the gripper; it is not part of the episode.
        self._env.step(np.zeros(self._action_dim(), np.float32))
        return observation

    def _act(self, action: Floats) -> Outcome:
        reward, success = 0.0, 0.0
        for _ in range(_ACTION_REPEAT):
            observation, earned, _, _, info = self._env.step(action.copy())
            reward += float(earned)
            success = float(info["success"])  # of the later step, as in the official program
        return Outcome(np.asarray(observation, np.float32), reward, False, False, success)

    def _action_dim(self) -> int:
        return METAWORLD_FACTS[1]

    def render(self, height: int, width: int) -> NDArray[np.uint8]:
        """A frame from the camera at the corner of the table."""
        import mujoco

        if (height, width) not in self._renderers:
            self._renderers[height, width] = mujoco.Renderer(self._env.model, height, width)
        renderer = self._renderers[height, width]
        renderer.update_scene(self._env.data, camera="corner2")
        # Meta-World mounts this camera upside down.
        return np.ascontiguousarray(renderer.render()[::-1, ::-1])


def _make(task: str) -> Any:
    # Imported late: the package is optional.
    import mujoco
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE as TASKS
    from metaworld.sawyer_xyz_env import SawyerMocapBase

    SawyerMocapBase.reset_mocap_welds = _reset_mocap_welds
    try:
        return TASKS[f"{task.removeprefix(METAWORLD_PREFIX)}-v3-goal-observable"](seed=0)
    # Another Meta-World or MuJoCo than those that are tested together.
    except ValueError as error:
        raise UserError(
            f"task {task}: this Meta-World does not run with mujoco {mujoco.__version__} ({error}); "
            "pip install 'lockstep-train[metaworld]'"
        ) from error


def _reset_mocap_welds(env: Any) -> None:
    """What Meta-World's method of this name does, for any version of MuJoCo.

    It pins an older MuJoCo because it assigns whole rows of `eq_data`, which have a column more since. The columns of a
    weld are still the first eleven: anchor, relative pose, and the weight of rotations.
    """
    import mujoco

    welds = env.model.eq_type == mujoco.mjtEq.mjEQ_WELD
    if env.model.nmocap > 0:
        env.model.eq_data[welds, : len(_WELD)] = _WELD
