"""Snake as a problem to learn: boards as tensors, and the baselines to compare with."""

from torch import Tensor

from lockstep.distributed.world import World
from lockstep.reporting.evaluation import Evaluation
from lockstep.rl.evaluation import evaluate
from lockstep.rl.problem import Discrete, EnvProblem
from lockstep.workloads.snake import expert
from lockstep.workloads.snake.env import SnakeEnv
from lockstep.workloads.snake.rules import SnakeRules

BASELINES = {"scripted": expert.scripted_action, "random": expert.random_action}


def snake_problem(rules: SnakeRules, world: World) -> EnvProblem:
    """Boards on this rank's device. Called by every rank."""

    def make_env(index: Tensor, seed: int) -> SnakeEnv:
        return SnakeEnv(rules, index, seed, world.device)

    return EnvProblem(
        name="snake",
        observation_shape=(3 * rules.frame_stack, rules.grid_size, rules.grid_size),
        actions=Discrete(4),
        make_env=make_env,
        batch_invariant=True,
        teacher=expert.scripted_action,
    )


def evaluate_baseline(name: str, rules: SnakeRules, world: World, episodes: int, seed: int) -> Evaluation:
    """Evaluate a baseline policy. Called by every rank."""
    act = BASELINES[name]
    return evaluate(
        world,
        lambda index: SnakeEnv(rules, index, seed, world.device),
        lambda _, env: act(env),
        episodes,
        seed,
        tag="snake",
    )
