"""Continuous control as a problem to learn: tasks as environments on the host, and their recorded episodes."""

from pathlib import Path

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.experience.offline import check_data
from lockstep.algorithms.tdmpc2.model.official import converted, is_official
from lockstep.algorithms.tdmpc2.problem import TDMPC2Problem, spaces_of
from lockstep.algorithms.tdmpc2.settings import TDMPC2Settings
from lockstep.errors import UserError
from lockstep.rl.problem import Continuous, Tasks
from lockstep.storage.foreign_weights import read_state_dict
from lockstep.workloads.control import names
from lockstep.workloads.control.env import ControlEnv, make_env, task_facts
from lockstep.workloads.control.episodes import EpisodeFiles
from lockstep.workloads.control.settings import ControlConfig, ControlSettings

# Simulators run on the CPU; the algorithm moves what it needs to its own device.
_HOST = torch.device("cpu")


def control_problem(settings: ControlSettings) -> TDMPC2Problem:
    """The tasks of the settings; starts no simulator."""
    facts = task_facts(settings)

    def environments(index: Tensor, seed: int) -> ControlEnv:
        return make_env(settings, index, seed, _HOST)

    def recorded(folder: Path) -> EpisodeFiles:
        return EpisodeFiles(folder, facts)

    return TDMPC2Problem(
        name="control",
        observation_shape=names.IMAGE if settings.images else (facts.obs_dim,),
        image_bytes=settings.images,
        frames=names.FRAMES if settings.images else 0,
        actions=Continuous(facts.action_dim),
        make_env=environments,
        hosted=True,
        tasks=Tasks(facts.action_dims, facts.episode_lengths, facts.episodic, facts.tasks),
        recorded=recorded,
        # Public checkpoints of mt30 and mt80 must fit.
        other_sizes=settings.other_sizes,
    )


def check_recorded(config: ControlConfig, algorithm: TDMPC2Settings) -> str:
    """Check the recorded episodes of a run; returns a line about what was found."""
    files = EpisodeFiles(Path(algorithm.data_dir), task_facts(config.workload))
    spaces = spaces_of(control_problem(config.workload))
    return check_data(files, algorithm, config.effective_lanes, spaces)


def foreign_weights(config: ControlConfig, path: Path) -> dict[str, Tensor]:
    """Weights from a .pt or .pth file under Lockstep's names: the official TD-MPC2's, or those that have them."""
    stored = read_state_dict(path)
    if not is_official(stored):
        return stored
    if not isinstance(config.algorithm, TDMPC2Settings):
        raise UserError(
            f"{path}: holds weights of tdmpc2, but {config.run.algorithm} has other networks; use algorithm tdmpc2"
        )
    # The official program does not save the value scale; it converges again within a few hundred updates.
    return {"value_scale": torch.ones(())} | converted(stored)
