"""Snake for Gymnasium: one board, or many boards in one vector environment; numpy in, numpy out."""

import dataclasses
import difflib
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from lockstep.errors import UserError
from lockstep.workloads.snake import render
from lockstep.workloads.snake.env import SnakeEnv
from lockstep.workloads.snake.rules import SnakeRules

ENV_ID = "lockstep/Snake-v0"
RENDER_MODES = ("rgb_array", "ansi")

Frames = NDArray[np.float32]


class SnakeGymEnv(gymnasium.Env[Frames, int]):
    """One board; keyword arguments are those of `SnakeRules`."""

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 10}

    def __init__(self, render_mode: str | None = None, **rules: Any) -> None:
        self.rules, self.render_mode = _rules(rules), _known_mode(render_mode)
        self.observation_space, self.action_space = _spaces(self.rules)
        self._boards: SnakeEnv | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frames, dict[str, Any]]:
        """Start an episode; the same seed starts the same sequence of episodes."""
        super().reset(seed=seed)
        if seed is not None or self._boards is None:
            self._boards = _boards(self.rules, 1, self.np_random)
        return _frames(self._boards.reset())[0], {}

    def step(self, action: int) -> tuple[Frames, float, bool, bool, dict[str, Any]]:
        """Take one action; a board whose episode ended stays as it is until `reset`."""
        done = _started(self._boards).advance(_actions(np.asarray([action]), 1))
        info = {"length": int(done.info["length"]), "won": bool(done.info["won"])}
        return _frames(done.observation)[0], float(done.reward), bool(done.terminated), bool(done.truncated), info

    def render(self) -> NDArray[np.uint8] | str | None:  # type: ignore[override]
        """Return the board as the render mode asks."""
        return _render(_started(self._boards), 0, self.render_mode)


class SnakeGymVectorEnv(VectorEnv[Frames, NDArray[np.int64], NDArray[Any]]):
    """Many boards stepped together; a board whose episode ended restarts within the same step."""

    metadata = {**SnakeGymEnv.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int = 1, render_mode: str | None = None, **rules: Any) -> None:
        self.num_envs = num_envs
        self.rules, self.render_mode = _rules(rules), _known_mode(render_mode)
        self.single_observation_space, self.single_action_space = _spaces(self.rules)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._boards: SnakeEnv | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frames, dict[str, Any]]:
        """Start an episode on every board; the same seed starts the same sequences of episodes."""
        super().reset(seed=seed)
        if seed is not None or self._boards is None:
            self._boards = _boards(self.rules, self.num_envs, self.np_random)
        return _frames(self._boards.reset()), {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Frames, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take one action on every board; `final_obs` and `final_info` describe the ends of finished episodes."""
        boards = _started(self._boards)
        done = boards.advance(_actions(actions, self.num_envs))
        observation, ended = done.observation, done.terminated | done.truncated
        facts = {name: value.numpy() for name, value in done.info.items()}
        infos = _with_masks(facts, ~ended.numpy())
        if ended.any():
            infos |= _finals(_frames(observation), facts, ended.numpy())
            observation = boards.restart(ended)
        return _frames(observation), done.reward.numpy(), done.terminated.numpy(), done.truncated.numpy(), infos

    def render(self) -> tuple[Any, ...] | None:
        """Return every board as the render mode asks."""
        boards = _started(self._boards)
        return tuple(_render(boards, board, self.render_mode) for board in range(self.num_envs))


def _rules(options: dict[str, Any]) -> SnakeRules:
    known = [field.name for field in dataclasses.fields(SnakeRules)]
    for name in options:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
            raise UserError(f'{ENV_ID} has no rule "{name}"; the nearest is {nearest}, all: {", ".join(known)}')
    return SnakeRules(**options)


def rules_of(settings: SnakeRules) -> dict[str, Any]:
    """The keyword arguments that create boards with these rules."""
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(SnakeRules)}


def _known_mode(mode: str | None) -> str | None:
    if mode is not None and mode not in RENDER_MODES:
        raise UserError(f'{ENV_ID} has no render_mode "{mode}"; allowed: {", ".join(RENDER_MODES)}')
    return mode


def _spaces(rules: SnakeRules) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    shape = (3 * rules.frame_stack, rules.grid_size, rules.grid_size)
    return spaces.Box(0.0, 1.0, shape, np.float32), spaces.Discrete(4)


def _boards(rules: SnakeRules, count: int, generator: np.random.Generator) -> SnakeEnv:
    return SnakeEnv(rules, torch.arange(count), int(generator.integers(2**63)), torch.device("cpu"))


def _started(boards: SnakeEnv | None) -> SnakeEnv:
    if boards is None:
        raise UserError(f"{ENV_ID}: call reset before step or render")
    return boards


def _actions(actions: NDArray[np.int64], count: int) -> Tensor:
    actions = np.asarray(actions)
    if actions.shape != (count,) or actions.min() < 0 or actions.max() > 3:
        raise UserError(f"{ENV_ID}: actions {actions.tolist()}; allowed: {count} of 0 left, 1 right, 2 up, 3 down")
    return torch.as_tensor(actions, dtype=torch.int64)


def _frames(observation: Tensor) -> Frames:
    return observation.numpy().astype(np.float32)


def _render(boards: SnakeEnv, board: int, mode: str | None) -> NDArray[np.uint8] | str | None:
    if mode == "rgb_array":
        return render.frame(boards, board)
    return render.text(boards, board) if mode == "ansi" else None


def _with_masks(values: dict[str, Any], mask: NDArray[np.bool_]) -> dict[str, Any]:
    """Add a mask `_name` beside each value: the boards it is valid for, as Gymnasium's vector infos do."""
    return {**values, **{f"_{name}": mask.copy() for name in values}}


def _finals(frames: Frames, facts: dict[str, Any], ended: NDArray[np.bool_]) -> dict[str, Any]:
    """Gymnasium's report on the boards in the mask: the last observation of each as an object, the rest as arrays."""
    final = np.full(len(ended), None, dtype=object)
    for board in ended.nonzero()[0]:
        final[board] = frames[board]
    return _with_masks({"final_obs": final, "final_info": _with_masks(facts, ended)}, ended)
