"""Renders MuJoCo in a separate process, with whichever OpenGL backend works on this machine."""

import os

import torch

from lockstep.envs.worker_pool import WorkerPool
from lockstep.errors import RunFailed, UserError
from lockstep.workloads.control.env import ControlEnv
from lockstep.workloads.control.names import TaskFacts

VARIABLE = "MUJOCO_GL"
# Values that turn rendering off; suite.py sets `disabled` itself, so they are not a user's choice.
_OFF = ("", "disabled", "disable", "off", "0", "false", "no")


def backends() -> list[str]:
    """OpenGL backends to try, best first; only the user's if MUJOCO_GL names one."""
    chosen = os.environ.get(VARIABLE, "").strip().lower()
    if chosen not in _OFF:
        return [chosen]
    # glfw opens a window, so it needs a display; the other two render off screen.
    return ["egl", "osmesa", *(["glfw"] if os.environ.get("DISPLAY") else [])]


def open_stage(facts: TaskFacts) -> WorkerPool:
    """Start a worker that can render; UserError if no OpenGL backend works on this machine."""
    reasons = []
    for backend in backends():
        # MuJoCo fixes its backend when it is imported, so each attempt needs a new process.
        stage = WorkerPool(pictures=True, **{VARIABLE: backend})
        try:
            env = ControlEnv(facts, torch.tensor([0]), 0, torch.device("cpu"), stage=stage)
            # A tiny frame: some backends import without an error and fail at the first rendering.
            env.reset()
            env.render(16, 16)
            return stage
        except RunFailed as failure:
            stage.disband()
            # The message starts with the worker's name; the reason follows.
            reasons.append(f"{backend}: {str(failure).partition(': ')[2].splitlines()[0] or failure}")
    raise UserError(
        f"{facts.tasks[0]}: cannot render, OpenGL is missing ({'; '.join(reasons)}); "
        f"install libegl1 or libosmesa6, or set {VARIABLE} to an available backend"
    )
