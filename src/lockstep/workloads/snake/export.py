"""A trained Snake network for other programs: a Stable-Baselines3 model, an ONNX graph."""

import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.rl.networks import ActorCritic
from lockstep.workloads.snake.build import build_network, rules_of
from lockstep.workloads.snake.gym import SnakeGymEnv
from lockstep.workloads.snake.sb3 import SnakeFeatures, make_ppo
from lockstep.workloads.snake.workload import SnakeConfig

Weights = Mapping[str, Tensor]


def write_sb3(config: SnakeConfig, weights: Weights, path: Path) -> None:
    """Write a zip for `stable_baselines3.PPO.load`, ready to predict or to train on. Needs stable-baselines3."""
    network = _network(config, weights)
    steps = max(config.n_steps, 2)
    boards = SnakeGymEnv(**vars(rules_of(config)))
    # One environment; whoever trains on sets both sizes for theirs.
    player = make_ppo(config, boards, SnakeFeatures, n_steps=steps, batch_size=steps)
    policy: Any = player.policy
    policy.features_extractor.layers.load_state_dict(network.features.state_dict())
    policy.action_net.load_state_dict(network.actor.state_dict())
    policy.value_net.load_state_dict(network.critic.state_dict())
    with path.open("wb") as file:
        player.save(file)


def write_onnx(config: SnakeConfig, weights: Weights, path: Path) -> None:
    """Write a graph from `observation` (B, 3F, N, N) to `logits` (B, 4) and `value` (B,). Needs onnx and onnxscript."""
    import onnxscript  # noqa: F401 - the exporter asks for it late, and in other words

    network = _network(config, weights).eval().requires_grad_(False)
    boards = torch.zeros(2, 3 * config.frame_stack, config.grid_size, config.grid_size)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (boards,),
            path,
            input_names=["observation"],
            output_names=["logits", "value"],
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def _network(config: SnakeConfig, weights: Weights) -> ActorCritic:
    network = build_network(config)
    network.load_state_dict(dict(weights))
    return network


WRITERS: dict[str, Callable[[SnakeConfig, Weights, Path], None]] = {"sb3": write_sb3, "onnx": write_onnx}
"""By the names in EXPORTS."""
