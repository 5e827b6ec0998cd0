"""Snake as a learner: the environment, the network and PPO put together."""

from torch import Tensor

from lockstep.algorithms.ppo.learner import PPOLearner
from lockstep.distributed.world import World
from lockstep.reporting.evaluation import Evaluation
from lockstep.rl.evaluation import evaluate
from lockstep.rl.networks import ActorCritic
from lockstep.workloads.snake import expert, model
from lockstep.workloads.snake.env import SnakeEnv
from lockstep.workloads.snake.rules import SnakeRules
from lockstep.workloads.snake.workload import SnakeConfig

BASELINES = {"scripted": expert.scripted_action, "random": expert.random_action}


def rules_of(config: SnakeConfig) -> SnakeRules:
    """The game that a configuration asks for."""
    return SnakeRules(
        grid_size=config.grid_size,
        max_steps=config.max_steps,
        step_penalty=config.step_penalty,
        death_penalty=config.death_penalty,
        food_reward=config.food_reward,
        distance_reward_scale=config.distance_reward_scale,
        frame_stack=config.frame_stack,
        time_limit=config.time_limit,
    )


def build_network(config: SnakeConfig) -> ActorCritic:
    """The network that a configuration asks for, with its initial weights."""
    channels = 3 * config.frame_stack
    return model.network(
        config.policy_arch, channels, config.grid_size, config.policy_width, config.policy_depth, config.seed
    )


def build_learner(config: SnakeConfig, world: World) -> PPOLearner:
    """PPO on Snake. Called by every rank."""
    rules = rules_of(config)

    def make_env(index: Tensor, seed: int) -> SnakeEnv:
        return SnakeEnv(rules, index, seed, world.device)

    return PPOLearner(
        config,
        world,
        build_network(config),
        make_env,
        name="snake",
        teacher=expert.scripted_action,
        cloning_steps=config.pretrain_bc,
    )


def evaluate_baseline(name: str, config: SnakeConfig, world: World, episodes: int, seed: int) -> Evaluation:
    """How good a policy without a network is. Called by every rank."""
    rules, act = rules_of(config), BASELINES[name]
    return evaluate(
        world,
        lambda index: SnakeEnv(rules, index, seed, world.device),
        lambda _, env: act(env),
        episodes,
        seed,
        tag="snake",
    )
