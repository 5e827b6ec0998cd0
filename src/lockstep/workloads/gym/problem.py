"""Environments from outside as a problem to learn, by their kind."""

import torch

from lockstep.distributed.world import World
from lockstep.envs.spaces import Actions, Continuous, MultiDiscrete, Part
from lockstep.reporting.evaluation import Evaluation
from lockstep.rl.evaluation import HOSTED_AT_ONCE, evaluate
from lockstep.rl.problem import EnvProblem, MakeEnv, TeamProblem
from lockstep.workloads.gym.agents import agents_problem
from lockstep.workloads.gym.kinds import kind_of
from lockstep.workloads.gym.random_policy import RandomActions
from lockstep.workloads.gym.settings import GymSettings
from lockstep.workloads.gym.single import single_problem
from lockstep.workloads.gym.tensor import tensor_problem
from lockstep.workloads.gym.vector import vector_problem


def gym_problem(settings: GymSettings, device: torch.device) -> EnvProblem | TeamProblem:
    """The environments of the settings; hosted ones start no worker yet."""
    kind = kind_of(settings)
    if kind == "tensor":
        return tensor_problem(settings, device)
    if kind == "vector":
        return vector_problem(settings)
    return agents_problem(settings) if kind == "agents" else single_problem(settings)


def evaluate_random(settings: GymSettings, world: World, episodes: int, seed: int) -> Evaluation:
    """Evaluate actions that are drawn at random. Called by every rank."""
    problem = gym_problem(settings, world.device)
    make_test: MakeEnv
    actions: Actions
    parts: tuple[Part, ...]
    if isinstance(problem, TeamProblem):
        make_test, actions, parts = problem.make_test, _joint_actions(problem), ()
    else:
        make_test, actions, parts = problem.test_environments, problem.actions, problem.parts
    return evaluate(
        world,
        lambda index: make_test(index, seed),
        RandomActions(actions, seed, parts),
        episodes,
        seed,
        tag="gym",
        at_once=HOSTED_AT_ONCE,
    )


def _joint_actions(team: TeamProblem) -> MultiDiscrete | Continuous:
    """The actions of all agents, as one action."""
    agents, each = team.observation_shape[0], team.actions
    return Continuous(each.size * agents) if isinstance(each, Continuous) else MultiDiscrete((each.count,) * agents)
