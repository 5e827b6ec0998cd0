"""Environments from outside as a problem to learn, by their kind."""

import torch

from lockstep.distributed.world import World
from lockstep.reporting.evaluation import Evaluation
from lockstep.rl.evaluation import HOSTED_AT_ONCE, evaluate
from lockstep.rl.problem import EnvProblem
from lockstep.workloads.gym.kinds import kind_of
from lockstep.workloads.gym.random_policy import RandomActions
from lockstep.workloads.gym.settings import GymSettings
from lockstep.workloads.gym.single import single_problem
from lockstep.workloads.gym.tensor import tensor_problem


def gym_problem(settings: GymSettings, device: torch.device) -> EnvProblem:
    """The environments of the settings; hosted ones start no worker yet."""
    if kind_of(settings) == "tensor":
        return tensor_problem(settings, device)
    return single_problem(settings)


def evaluate_random(settings: GymSettings, world: World, episodes: int, seed: int) -> Evaluation:
    """Evaluate actions that are drawn at random. Called by every rank."""
    problem = gym_problem(settings, world.device)
    return evaluate(
        world,
        lambda index: problem.environments(index, seed),
        RandomActions(problem, seed),
        episodes,
        seed,
        tag="gym",
        at_once=HOSTED_AT_ONCE,
    )
