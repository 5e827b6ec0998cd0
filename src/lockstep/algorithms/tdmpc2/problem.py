"""Problems for TD-MPC2: environments with continuous actions, and the sizes that the world model needs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.discrete import Bins
from lockstep.algorithms.tdmpc2.host_env import HostEnv
from lockstep.algorithms.tdmpc2.library import RecordedEpisodes
from lockstep.algorithms.tdmpc2.model import Sizes, Spaces, TDMPC2Model
from lockstep.algorithms.tdmpc2.settings import OtherSizes, WorldModelSettings
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


def spaces_of(problem: EnvProblem, episodic: bool | None = None) -> Spaces:
    """The sizes that the world model needs; `episodic`: whether episodes can end, None = as the problem says."""
    if not isinstance(problem.actions, Continuous):
        raise UserError(
            f"algorithm tdmpc2: needs continuous actions, and those of {problem.name} are discrete; "
            "choose another --algorithm"
        )
    # If nothing is known, episodes may end by the rules: learning that they never do costs little.
    tasks = problem.tasks or Tasks((problem.actions.size,), (_USUAL_LENGTH,), terminates=True)
    return Spaces(
        math.prod(problem.observation_shape),
        tasks.action_sizes,
        tasks.episode_lengths,
        tasks.terminates if episodic is None else episodic,
        tasks.names,
    )


def build_model(settings: WorldModelSettings, problem: EnvProblem, episodic: bool | None, seed: int) -> TDMPC2Model:
    """Build the networks, with the same initial weights on every rank."""
    spaces = spaces_of(problem, episodic)
    other = problem.other_sizes if isinstance(problem, TDMPC2Problem) else {}
    settings.check_latent(other)
    sizes = Sizes(
        encoder=settings.size("enc_dim", other),
        encoder_layers=settings.size("num_enc_layers", other),
        hidden=settings.size("mlp_dim", other),
        latent=settings.size("latent_dim", other),
        values=settings.size("num_q", other),
        task=settings.size("task_dim", other) if spaces.tasks > 1 else 0,
        simplex=settings.simnorm_dim,
        log_std=(settings.log_std_min, settings.log_std_max),
        bins=Bins(settings.vmin, settings.vmax, settings.num_bins),
        dropout=settings.dropout,
    )
    return TDMPC2Model(sizes, spaces, seed)


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
    make = problem.test_environments if test else problem.environments
    env = make(index.cpu() if problem.hosted else index.to(device), seed)
    if problem.hosted and isinstance(env, ContinuousEnv):
        return env
    assert isinstance(problem.actions, Continuous)
    return HostEnv(env, index.to(device), problem.actions.size)
