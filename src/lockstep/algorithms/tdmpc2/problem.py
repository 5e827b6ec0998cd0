"""Problems for TD-MPC2: environments with continuous actions, and the sizes that the world model needs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.experience.host_env import HostEnv
from lockstep.algorithms.tdmpc2.experience.recorded import RecordedEpisodes
from lockstep.algorithms.tdmpc2.model.networks import Spaces
from lockstep.algorithms.tdmpc2.model.sizes import OtherSizes
from lockstep.envs.vector_env import ContinuousEnv
from lockstep.errors import UserError
from lockstep.rl.problem import Continuous, EnvProblem, Tasks

_USUAL_LENGTH = 1000
"""Assumed length of episodes if a problem does not say; the discount is computed from it."""


@dataclass(kw_only=True)
class TDMPC2Problem(EnvProblem):
    """A problem with options that only TD-MPC2 uses; it learns any other `EnvProblem` too."""

    recorded: Callable[[Path], RecordedEpisodes] | None = None
    """Opens a directory of recorded episodes (`data_dir`); None = not supported."""
    other_sizes: OtherSizes = field(default_factory=dict)
    """Network sizes that differ from MODEL_SIZES, so that public checkpoints of this problem fit."""
    frames: int = 0
    """Frames of an image observation (channels, 64, 64) of bytes, stacked along its channels; 0 = not images."""


def spaces_of(problem: EnvProblem, episodic: bool | None = None) -> Spaces:
    """The sizes that the world model needs; `episodic`: whether episodes can end, None = as the problem says."""
    if not isinstance(problem.actions, Continuous):
        raise UserError(
            f"algorithm tdmpc2: needs continuous actions, and {problem.name} has discrete ones; choose another "
            "--algorithm"
        )
    stacked = isinstance(problem, TDMPC2Problem) and problem.frames > 0
    image = cast(tuple[int, int, int], problem.observation_shape) if stacked else None
    # If nothing is known, episodes may end by the rules: learning that they never do costs little.
    tasks = problem.tasks or Tasks((problem.actions.size,), (_USUAL_LENGTH,), terminates=True)
    return Spaces(
        math.prod(problem.observation_shape),
        tasks.action_sizes,
        tasks.episode_lengths,
        tasks.terminates if episodic is None else episodic,
        tasks.names,
        image,
        problem.frames if isinstance(problem, TDMPC2Problem) and stacked else 1,
    )


def sizes_of(problem: EnvProblem) -> OtherSizes:
    """Network sizes, by model_size, in which a problem deviates from MODEL_SIZES."""
    return problem.other_sizes if isinstance(problem, TDMPC2Problem) else {}


def recorded_episodes(problem: EnvProblem, data_dir: str) -> RecordedEpisodes:
    """The episodes of a directory; UserError if the problem does not support recorded episodes."""
    if not isinstance(problem, TDMPC2Problem) or problem.recorded is None:
        raise UserError(f"data_dir {data_dir}: {problem.name} has no recorded episodes to learn from; leave it out")
    return problem.recorded(Path(data_dir))


def environments(
    problem: EnvProblem, index: Tensor, seed: int, device: torch.device, *, test: bool = False
) -> ContinuousEnv:
    """Environments (E,) of a problem, which return host tensors, for training or for evaluation.

    `device`: where environments run that are not hosted.
    """
    # Hosted environments take their index on the host; the others run on the device.
    make = problem.test_environments if test else problem.environments
    env = make(index.cpu() if problem.hosted else index.to(device), seed)
    if problem.hosted and isinstance(env, ContinuousEnv):
        return env
    assert isinstance(problem.actions, Continuous)
    return HostEnv(env, index.to(device), problem.actions.size)
