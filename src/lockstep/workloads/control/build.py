"""Continuous control as a learner: tasks, networks and TD-MPC2 put together."""

from collections.abc import Mapping
from pathlib import Path

import psutil
import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.collector import MANY_TASKS
from lockstep.algorithms.tdmpc2.learner import TDMPC2Learner, sizes_of
from lockstep.algorithms.tdmpc2.library import Library
from lockstep.algorithms.tdmpc2.model import Spaces, TDMPC2Model
from lockstep.algorithms.tdmpc2.official import read_official
from lockstep.algorithms.tdmpc2.sampler import columns
from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.rl.replay import bytes_of_row
from lockstep.rl.sequence_replay import SequenceReplay
from lockstep.storage.tensor_file import Form
from lockstep.storage.weights import load_weights, misfit
from lockstep.workloads.control.config import ControlConfig
from lockstep.workloads.control.env import ControlEnv, make_env, task_facts
from lockstep.workloads.control.episodes import EpisodeFiles

_HOST = torch.device("cpu")


def spaces_of(config: ControlConfig) -> Spaces:
    """What the tasks of a configuration look like."""
    facts = task_facts(config)
    terminates = facts.episodic if config.episodic is None else config.episodic
    return Spaces(facts.obs_dim, facts.action_dims, facts.episode_lengths, terminates, facts.tasks)


def build_learner(config: ControlConfig, world: World) -> TDMPC2Learner:
    """TD-MPC2 on continuous control. Called by every rank."""

    def environments(index: Tensor, seed: int) -> ControlEnv:
        return make_env(config, index, seed, _HOST)

    return TDMPC2Learner(
        config,
        world,
        spaces_of(config),
        environments,
        name="control",
        library=(lambda lanes: read_library(config, lanes, world)) if config.offline else None,
        first_weights=(lambda: stored_weights(config)) if config.checkpoint else None,
    )


def read_library(config: ControlConfig, lanes: range, world: World) -> Library:
    """These lanes' part of the data: of all episodes in their order every so many-th one."""
    files = EpisodeFiles(Path(config.data_dir), task_facts(config))
    total = world.lanes.total
    taken = [sum(lengths) for lengths in (files.lengths()[lane::total] for lane in lanes)]
    rows = max(*taken, 2 * config.horizon)
    spaces = spaces_of(config)
    _check_room(config, len(lanes) * rows * bytes_of_row(columns(spaces)), world.device)
    memory = SequenceReplay(lanes, rows, 1, columns(spaces), config.seed, world.device, config.horizon)
    filled = dict.fromkeys(lanes, 0)
    numbers = [number for number in range(files.count) if number % total in lanes]
    for number, episode in zip(numbers, files.episodes(numbers), strict=True):
        lane = number % total
        task = {MANY_TASKS: torch.full((len(episode.action),), episode.task)} if spaces.tasks > 1 else {}
        memory.keep(
            lane,
            filled[lane],
            observation=episode.observation[:-1],
            following=episode.observation[1:],
            action=episode.action,
            reward=episode.reward,
            terminated=episode.terminated,
            **task,
        )
        filled[lane] += len(episode.action)
    return Library(lanes, memory, files.digest())


def _check_room(config: ControlConfig, needed: int, device: torch.device) -> None:
    """See that data of so many bytes fits into the memory that is free here."""
    on_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else psutil.virtual_memory().available
    if needed > free:
        raise UserError(
            f"data_dir {config.data_dir}: a rank's part of it needs {needed / 2**30:.1f} GiB of memory, and "
            f"{free / 2**30:.1f} GiB are free on {device}; use more {'GPUs' if on_gpu else 'machines'}, each holds the "
            "part of its lanes, or fewer files"
        )


def check_data(config: ControlConfig) -> str:
    """See that there is data for every lane, before anything is started; what there is in a line."""
    files = EpisodeFiles(Path(config.data_dir), task_facts(config))
    lanes = config.effective_lanes
    lacking = [lane for lane in range(lanes) if max(files.lengths()[lane::lanes], default=0) < config.horizon]
    if lacking:
        raise UserError(
            f"data_dir {config.data_dir}: {files.count} episode(s) are too few, or too short for a horizon of "
            f"{config.horizon}, to give each of {lanes} lanes one; record more, or lower --lanes"
        )
    return f"data         {files.count:,} episodes, {files.steps:,} steps in {config.data_dir}"


def stored_weights(config: ControlConfig) -> dict[str, Tensor]:
    """The weights of `checkpoint`; UserError where a run of this configuration has no use for them."""
    below = Path(config.runs_dir) / config.checkpoint
    path = below if not Path(config.checkpoint).exists() and below.exists() else Path(config.checkpoint)
    return fitting_weights(config, path)


def fitting_weights(config: ControlConfig, path: Path) -> dict[str, Tensor]:
    """The weights at a path, the official program's (.pt) or ours; UserError where they do not fit."""
    spaces = spaces_of(config)
    needed = TDMPC2Model(sizes_of(config, spaces.tasks), spaces, config.seed).state_dict()
    # The official program does not keep the scale of the values; it is found again within a few hundred updates.
    scale = {"value_scale": needed["value_scale"]}

    def refuse_others(weights: Mapping[str, Tensor | Form]) -> None:
        if problem := misfit(scale | dict(weights), needed):
            raise UserError(f"checkpoint {path}: {problem}; use the task and model_size that it has")

    if path.suffix != ".pt":
        return scale | load_weights(path, refuse_others)[0]
    weights = read_official(path)
    refuse_others(weights)
    return scale | weights
