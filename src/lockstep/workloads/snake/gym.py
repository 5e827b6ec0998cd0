"""Snake for Gymnasium: one board, or many boards in one vector environment."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from lockstep.config.fields import settings_of
from lockstep.envs.gym_adapter import (
    GymDeclaration,
    Rendering,
    TensorGymEnv,
    TensorGymVectorEnv,
    settings_from,
    vector_metadata,
)
from lockstep.workloads.snake import render
from lockstep.workloads.snake.env import ACTIONS, SnakeEnv
from lockstep.workloads.snake.rules import SnakeRules

ENV_ID = "lockstep/Snake-v0"
_RENDERERS: dict[str, Callable[[SnakeEnv, int], Rendering]] = {"rgb_array": render.frame, "ansi": render.text}


class SnakeGymEnv(TensorGymEnv[SnakeEnv]):
    """One board; keyword arguments are the fields of `SnakeRules`."""

    metadata = {"render_modes": list(_RENDERERS), "render_fps": 10}

    def __init__(self, render_mode: str | None = None, **rules: Any) -> None:
        self.rules = settings_from(ENV_ID, SnakeRules, rules)
        super().__init__(_declaration(self.rules), render_mode)


class SnakeGymVectorEnv(TensorGymVectorEnv[SnakeEnv]):
    """Many boards stepped together; keyword arguments are the fields of `SnakeRules`."""

    metadata = vector_metadata(SnakeGymEnv.metadata)

    def __init__(self, num_envs: int = 1, render_mode: str | None = None, **rules: Any) -> None:
        self.rules = settings_from(ENV_ID, SnakeRules, rules)
        super().__init__(_declaration(self.rules), num_envs, render_mode)


def rules_of(settings: SnakeRules) -> dict[str, Any]:
    """The keyword arguments that create boards with these rules; subclasses may have further settings."""
    return {name: getattr(settings, name) for name in settings_of(SnakeRules)}


def _declaration(rules: SnakeRules) -> GymDeclaration[SnakeEnv]:
    shape = (3 * rules.frame_stack, rules.grid_size, rules.grid_size)
    return GymDeclaration(
        env_id=ENV_ID,
        observation_space=spaces.Box(0.0, 1.0, shape, np.float32),
        actions=ACTIONS,
        make=partial(_boards, rules),
        renderers=_RENDERERS,
    )


def _boards(rules: SnakeRules, index: Tensor, seed: int) -> SnakeEnv:
    return SnakeEnv(rules, index, seed, torch.device("cpu"))
