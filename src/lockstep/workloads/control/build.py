"""Continuous control as a learner: tasks, networks and TD-MPC2 put together."""

from pathlib import Path

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.learner import TDMPC2Learner, sizes_of
from lockstep.algorithms.tdmpc2.model import Spaces, TDMPC2Model
from lockstep.algorithms.tdmpc2.official import read_official
from lockstep.core.distributed.world import World
from lockstep.core.errors import UserError
from lockstep.core.storage.weights import load_weights
from lockstep.workloads.control.config import ControlConfig
from lockstep.workloads.control.env import ControlEnv, make_env, task_facts

_HOST = torch.device("cpu")


def spaces_of(config: ControlConfig) -> Spaces:
    """What the tasks of a configuration look like."""
    facts = task_facts(config)
    terminates = facts.episodic if config.episodic is None else config.episodic
    return Spaces(facts.obs_dim, facts.action_dims, facts.episode_lengths, terminates)


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
        first_weights=(lambda: stored_weights(config)) if config.checkpoint else None,
    )


def stored_weights(config: ControlConfig) -> dict[str, Tensor]:
    """The weights of `checkpoint`; UserError where a run of this configuration has no use for them."""
    spaces = spaces_of(config)
    needed = TDMPC2Model(sizes_of(config, spaces.tasks), spaces, config.seed).state_dict()
    below = Path(config.runs_dir) / config.checkpoint
    path = below if not Path(config.checkpoint).exists() and below.exists() else Path(config.checkpoint)
    weights = read_official(path) if path.suffix == ".pt" else load_weights(path)[0]
    # The official program does not keep the scale of the values; it is found again within a few hundred updates.
    weights = {"value_scale": needed["value_scale"]} | weights
    for name in sorted(weights.keys() | needed.keys()):
        stored, wanted = weights.get(name), needed.get(name)
        if stored is None or wanted is None or stored.shape != wanted.shape:
            have = "nothing" if stored is None else tuple(stored.shape)
            want = "nothing" if wanted is None else tuple(wanted.shape)
            raise UserError(
                f"checkpoint {config.checkpoint}: tensor {name} is {have} there and {want} here; "
                "use the task and model_size that it has"
            )
    return weights
