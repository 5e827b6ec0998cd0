"""Snake's networks: feature extractors for (B, C, N, N) boards of zeros and ones, with a 256-d output."""

import torch
from torch import Tensor, nn

from lockstep.core.random import derive_seed
from lockstep.parts.convolution import Conv3x3
from lockstep.parts.networks import ActorCritic, initialise

FEATURES = 256


class _Boards(nn.Module):
    """A board as the convolutions want it: fp32, channels last (twice as fast on CPUs, needed by tensor cores)."""

    def forward(self, boards: Tensor) -> Tensor:
        return boards.to(dtype=torch.float32, memory_format=torch.channels_last)


class _Skip(nn.Module):
    """A convolution whose result is added to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = Conv3x3(width, width)

    def forward(self, planes: Tensor) -> Tensor:
        return planes + torch.relu(self.convolution(planes))


def _tiny(channels: int, width: int, depth: int) -> tuple[list[nn.Module], int]:
    layers = [
        Conv3x3(channels, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        Conv3x3(32, 64),
        nn.ReLU(),
    ]
    return layers, 64


def _scalable(channels: int, width: int, depth: int) -> tuple[list[nn.Module], int]:
    layers: list[nn.Module] = []
    for number in range(depth):
        layers += [Conv3x3(width if number else channels, width), nn.ReLU()]
    return [*layers, nn.MaxPool2d(2)], width


def _deep(channels: int, width: int, depth: int) -> tuple[list[nn.Module], int]:
    start = [Conv3x3(channels, width), nn.ReLU(), _Skip(width)]
    return [*start, Conv3x3(width, 2 * width), nn.ReLU(), nn.MaxPool2d(2)], 2 * width


_ARCHITECTURES = {"tiny": _tiny, "scalable": _scalable, "deep": _deep}


def features(architecture: str, channels: int, grid_size: int, width: int, depth: int) -> nn.Sequential:
    """The feature extractor of one architecture."""
    layers, planes = _ARCHITECTURES[architecture](channels, width, depth)
    flat = nn.Linear(planes * (grid_size // 2) ** 2, FEATURES)
    return nn.Sequential(_Boards(), *layers, nn.Flatten(), flat, nn.ReLU())


def network(architecture: str, channels: int, grid_size: int, width: int, depth: int, seed: int) -> ActorCritic:
    """The whole network with its initial weights, the same on every rank."""
    model = ActorCritic(features(architecture, channels, grid_size, width, depth), FEATURES, action_count=4)
    generator = torch.Generator().manual_seed(derive_seed(seed, "initial-weights"))
    initialise(model, model.actor, model.critic, generator)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model
