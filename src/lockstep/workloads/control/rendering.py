"""Pictures of MuJoCo: a process of its own that draws, with whichever OpenGL this machine has."""

import os

import torch

from lockstep.errors import RunFailed, UserError
from lockstep.workloads.control.env import ControlEnv
from lockstep.workloads.control.names import TaskFacts
from lockstep.workloads.control.worker_pool import WorkerPool

VARIABLE = "MUJOCO_GL"
_OFF = ("", "disabled", "disable", "off", "0", "false", "no")


def backends() -> list[str]:
    """Kinds of OpenGL to try, the best first; only the user's where there is a wish."""
    wish = os.environ.get(VARIABLE, "").strip().lower()
    if wish not in _OFF:
        return [wish]
    return ["egl", "osmesa", *(["glfw"] if os.environ.get("DISPLAY") else [])]


def open_stage(facts: TaskFacts) -> WorkerPool:
    """A worker whose environments can be drawn; UserError where nothing on this machine draws them."""
    reasons = []
    for backend in backends():
        # What MuJoCo draws with is decided when it is imported, so a process has one try.
        stage = WorkerPool(pictures=True, **{VARIABLE: backend})
        try:
            env = ControlEnv(facts, torch.tensor([0]), 0, torch.device("cpu"), stage=stage)
            env.reset()
            env.render(16, 16)
            return stage
        except RunFailed as failure:
            stage.disband()
            reasons.append(f"{backend}: {str(failure).partition(': ')[2].splitlines()[0] or failure}")
    raise UserError(
        f"{facts.tasks[0]}: no picture, OpenGL is missing ({'; '.join(reasons)}); "
        f"install libegl1 or libosmesa6, or set {VARIABLE} to what there is"
    )
