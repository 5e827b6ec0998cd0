"""Snake's networks: feature extractors for (B, C, N, N) boards of zeros and ones, with a 256-d output."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lockstep.compute.lane_axis import by_row, with_rule
from lockstep.compute.ops.convolution import Conv3x3
from lockstep.compute.random import derive_seed
from lockstep.rl.networks import ActorCritic, initialise

FEATURES = 256


def _channels_last(boards: Tensor) -> Tensor:
    return boards.to(dtype=torch.float32, memory_format=torch.channels_last)


_converted = with_rule(_channels_last, by_row(_channels_last, (0,), 0))


class _Boards(nn.Module):
    """Converts boards for the convolutions: fp32, channels last (twice as fast on CPUs, needed by tensor cores)."""

    def forward(self, boards: Tensor) -> Tensor:
        return _converted(boards)


class _Skip(nn.Module):
    """A convolution whose result is added to its input."""

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, planes: Tensor) -> Tensor:
        return planes + torch.relu(self.convolution(planes))


Convolution = Callable[[int, int], nn.Module]
"""Makes a 3x3 convolution that keeps the size of the board."""


# Pooling comes before the ReLU: both are monotonic, so values and gradients are the same, on a quarter of the cells.
def _tiny(channels: int, width: int, depth: int, make: Convolution) -> tuple[list[nn.Module], int]:
    return [make(channels, 32), nn.MaxPool2d(2), nn.ReLU(), make(32, 64), nn.ReLU()], 64


def _scalable(channels: int, width: int, depth: int, make: Convolution) -> tuple[list[nn.Module], int]:
    layers: list[nn.Module] = [make(channels, width)]
    for _ in range(depth - 1):
        layers += [nn.ReLU(), make(width, width)]
    return [*layers, nn.MaxPool2d(2), nn.ReLU()], width


def _deep(channels: int, width: int, depth: int, make: Convolution) -> tuple[list[nn.Module], int]:
    start = [make(channels, width), nn.ReLU(), _Skip(make(width, width))]
    return [*start, make(width, 2 * width), nn.MaxPool2d(2), nn.ReLU()], 2 * width


_ARCHITECTURES = {"tiny": _tiny, "scalable": _scalable, "deep": _deep}


def features(
    architecture: str, channels: int, grid_size: int, width: int, depth: int, make: Convolution = Conv3x3
) -> nn.Sequential:
    """The feature extractor of one architecture; its first layer prepares the boards."""
    layers, planes = _ARCHITECTURES[architecture](channels, width, depth, make)
    flat = nn.Linear(planes * (grid_size // 2) ** 2, FEATURES)
    return nn.Sequential(_Boards(), *layers, nn.Flatten(), flat, nn.ReLU())


def network(architecture: str, channels: int, grid_size: int, width: int, depth: int, seed: int) -> ActorCritic:
    """The whole network with its initial weights, the same on every rank."""
    model = ActorCritic(features(architecture, channels, grid_size, width, depth), FEATURES, action_count=4)
    generator = torch.Generator().manual_seed(derive_seed(seed, "initial-weights"))
    initialise(model, model.actor, model.critic, generator)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model
