"""Policies without a network, to compare with and to record."""

from collections.abc import Callable

import torch
from torch import Tensor

from lockstep.algorithms.tdmpc2.evaluator import AT_ONCE
from lockstep.compute import random
from lockstep.distributed.world import World
from lockstep.reporting.evaluation import Evaluation
from lockstep.rl.evaluation import evaluate
from lockstep.workloads.control.env import ControlEnv, TaskChoice, make_env
from lockstep.workloads.control.names import tasks_of

Act = Callable[[Tensor, ControlEnv], Tensor]
"""Observations (E, O) and their environments to actions (E, A)."""


def random_action(_: Tensor, env: ControlEnv) -> Tensor:
    """Anything from -1 to 1, drawn by the environment's number, its episode and the step."""
    episode, columns = env.episode * (1 << 16) + env.steps, torch.arange(env.action_dim)
    drawn = random.uniform(env.seed, "random action", env.index[:, None], episode[:, None], columns)
    return (2 * drawn - 1).to(env.device)


def no_action(_: Tensor, env: ControlEnv) -> Tensor:
    """The middle of every action's range."""
    return torch.zeros((env.count, env.action_dim), device=env.device)


BASELINES: dict[str, Act] = {"random": random_action, "zero": no_action}


def evaluate_baseline(name: str, config: TaskChoice, world: World, episodes: int, seed: int) -> Evaluation:
    """How good a policy without a network is, on so many episodes of each task. Called by every rank."""
    host = torch.device("cpu")
    act = BASELINES[name]
    return evaluate(
        world,
        lambda index: make_env(config, index, seed, host),
        act,
        episodes * len(tasks_of(config.task)),
        seed,
        tag="control",
        at_once=AT_ONCE,
    )
