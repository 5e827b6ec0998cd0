"""Policies without a network, used as reference points and to record episodes."""

from collections.abc import Callable

import torch
from torch import Tensor

from lockstep.compute import random
from lockstep.distributed.world import World
from lockstep.reporting.evaluation import Evaluation
from lockstep.rl.evaluation import HOSTED_AT_ONCE, evaluate
from lockstep.workloads.control.env import ControlEnv, make_env
from lockstep.workloads.control.settings import ControlSettings

Act = Callable[[Tensor, ControlEnv], Tensor]
"""Maps observations (E, O) and their environments to actions (E, A)."""


def random_action(_: Tensor, env: ControlEnv) -> Tensor:
    """Uniform in -1..1; a function of the environment's number, episode and step, so the same on any world size."""
    # Episode and step share one counter of the random stream: 16 bits for the step.
    counter, columns = env.episode * (1 << 16) + env.steps, torch.arange(env.action_dim)
    drawn = random.uniform(env.seed, "random action", env.index[:, None], counter[:, None], columns)
    return (2 * drawn - 1).to(env.device)


def no_action(_: Tensor, env: ControlEnv) -> Tensor:
    """The middle of every action's range."""
    return torch.zeros((env.count, env.action_dim), device=env.device)


BASELINES: dict[str, Act] = {"random": random_action, "zero": no_action}
Player = Callable[[Tensor, ControlEnv], tuple[Tensor, Tensor | None]]
"""A trained model: returns actions, and their probabilities if the action space is discrete."""


def policy_of(player: Player | str) -> Act:
    """Return a trained model, or one of BASELINES by name, as a plain policy."""
    if isinstance(player, str):
        return BASELINES[player]
    # Actions are continuous, so the probabilities are None.
    return lambda observation, env: player(observation, env)[0]


def evaluate_baseline(name: str, settings: ControlSettings, world: World, episodes: int, seed: int) -> Evaluation:
    """Evaluate a baseline on `episodes` episodes of each task. Called by every rank."""
    host = torch.device("cpu")  # simulators run there, and baselines need no GPU
    act = BASELINES[name]
    return evaluate(
        world,
        lambda index: make_env(settings, index, seed, host),
        act,
        episodes * len(settings.tasks),
        seed,
        tag="control",
        at_once=HOSTED_AT_ONCE,
    )
