"""The same network and settings for Stable-Baselines3, shared by the export and the comparison."""

from typing import Any

from torch import Tensor, nn

from lockstep.workloads.snake import model
from lockstep.workloads.snake.settings import SnakeConfig


class SnakeFeatures(nn.Module):
    """Our feature extractor with Stable-Baselines3's interface: takes the observation space, has `features_dim`."""

    def __init__(self, observation_space: Any, architecture: str, width: int, depth: int) -> None:
        super().__init__()
        channels, grid_size, _ = observation_space.shape
        self.features_dim = model.FEATURES
        self.layers = self._make(architecture, channels, grid_size, width, depth)

    def _make(self, architecture: str, channels: int, grid_size: int, width: int, depth: int) -> nn.Sequential:
        return model.features(architecture, channels, grid_size, width, depth)

    def forward(self, observation: Tensor) -> Tensor:
        """Boards (B, C, N, N) to features (B, 256)."""
        return self.layers(observation)


class PlainFeatures(SnakeFeatures):
    """The same layers as its users write them: PyTorch's own convolutions, in the default memory format."""

    def _make(self, architecture: str, channels: int, grid_size: int, width: int, depth: int) -> nn.Sequential:
        layers = model.features(architecture, channels, grid_size, width, depth, make=_plain_convolution)
        # Without the first layer, which changes the memory format.
        return nn.Sequential(*list(layers)[1:])


def _plain_convolution(channels: int, width: int) -> nn.Conv2d:
    return nn.Conv2d(channels, width, 3, padding=1)


def make_ppo(
    config: SnakeConfig,
    boards: Any,
    features: type[SnakeFeatures],
    *,
    n_steps: int,
    batch_size: int,
    device: str = "cpu",
) -> Any:
    """Stable-Baselines3's PPO with this configuration's network and settings. Needs stable-baselines3."""
    from stable_baselines3 import PPO

    network = {
        "architecture": config.network.policy_arch,
        "width": config.network.policy_width,
        "depth": config.network.policy_depth,
    }
    return PPO(
        "MlpPolicy",
        boards,
        n_steps=n_steps,
        batch_size=batch_size,
        **config.algorithm.shared_with_sb3(),
        policy_kwargs={
            "features_extractor_class": features,
            "features_extractor_kwargs": network,
            # No further layers between features and heads, and boards are already 0 and 1.
            "net_arch": [],
            "normalize_images": False,
        },
        seed=config.run.seed,
        device=device,
    )
