"""Exports a trained Snake network as a Stable-Baselines3 model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.rl.networks import ActorCritic
from lockstep.workloads.snake.gym import SnakeGymEnv, rules_of
from lockstep.workloads.snake.problem import snake_problem
from lockstep.workloads.snake.sb3 import SnakeFeatures, make_ppo
from lockstep.workloads.snake.settings import SnakeCNNSettings, SnakeConfig

Weights = Mapping[str, Tensor]


def write_sb3(config: SnakeConfig, weights: Weights, path: Path) -> None:
    """Write a zip for `stable_baselines3.PPO.load`, ready to predict or to train on. Needs stable-baselines3."""
    if not isinstance(config.network, SnakeCNNSettings):
        raise UserError(f"--format sb3: has no place for network {config.run.network}; allowed: cnn")
    network = _network(config, weights)
    steps = max(config.algorithm.n_steps, 2)
    boards = SnakeGymEnv(**rules_of(config.workload))
    # One environment only; users who continue training set both sizes for their own.
    player = make_ppo(config, boards, SnakeFeatures, n_steps=steps, batch_size=steps)
    policy: Any = player.policy
    policy.features_extractor.layers.load_state_dict(network.features.state_dict())
    policy.action_net.load_state_dict(network.actor.state_dict())
    policy.value_net.load_state_dict(network.critic.state_dict())
    with path.open("wb") as file:
        player.save(file)


def _network(config: SnakeConfig, weights: Weights) -> ActorCritic:
    network = config.network.build(snake_problem(config.workload, World()), config)
    network.load_state_dict(dict(weights))
    return network
