"""Renders environments in a separate process, with whichever OpenGL backend works on this machine."""

import os
import re
from collections.abc import Callable

from lockstep.envs.hosted_env import HostedEnv
from lockstep.envs.worker_pool import WorkerPool
from lockstep.errors import RunFailed, UserError

VARIABLE = "MUJOCO_GL"
# Values that turn rendering off; programs set `disabled` themselves, so they are not a user's choice.
_OFF = ("", "disabled", "disable", "off", "0", "false", "no")
_PYGAME = {"SDL_VIDEODRIVER": "dummy"}
"""Lets environments that draw with pygame do so without a display."""

_MISSING_PACKAGE = re.compile(r"No module named|not installed|a package it needs is missing")


def backends() -> list[str]:
    """OpenGL backends to try, best first; only the user's if MUJOCO_GL names one."""
    chosen = os.environ.get(VARIABLE, "").strip().lower()
    if chosen not in _OFF:
        return [chosen]
    # glfw opens a window, so it needs a display; the other two render off screen.
    return ["egl", "osmesa", *(["glfw"] if os.environ.get("DISPLAY") else [])]


def open_stage(make_env: Callable[[WorkerPool], HostedEnv], name: str) -> WorkerPool:
    """Start a worker that can render such an environment; UserError if it cannot be rendered on this machine."""
    reasons: list[str] = []
    for backend in backends():
        # MuJoCo fixes its backend when it is imported, so each attempt needs a new process.
        stage = WorkerPool(pictures=True, **{VARIABLE: backend, **_PYGAME})
        try:
            env = make_env(stage)
            # A tiny frame: some backends import without an error and fail at the first rendering.
            env.reset()
            env.render(16, 16)
            return stage
        except RunFailed as failure:
            stage.disband()
            reasons.append(_reason(failure))
    # Another backend changes nothing, or a package is missing: OpenGL is not the problem.
    if len(set(reasons)) == 1 and (len(reasons) > 1 or _MISSING_PACKAGE.search(reasons[0])):
        raise UserError(f"{name}: cannot be rendered ({reasons[0]})")
    tried = "; ".join(f"{backend}: {reason}" for backend, reason in zip(backends(), reasons, strict=True))
    raise UserError(
        f"{name}: cannot be rendered ({tried}); if OpenGL is missing, install libegl1 or libosmesa6, or set {VARIABLE} "
        "to an available backend"
    )


def _reason(failure: RunFailed) -> str:
    text = next(iter(str(failure).splitlines()), "")
    return text.partition(": ")[2] or text
