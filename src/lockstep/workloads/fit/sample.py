"""Something to learn where nothing is given: two spirals, and a small network with dropout."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.compute import random


class Spirals(Dataset[Any]):
    """Points (2,) of two spirals with some noise, and the number of their spiral."""

    def __init__(self, count: int, seed: int) -> None:
        number = torch.arange(count)
        self._label = number % 2
        turn = random.uniform(seed, "spirals", number, 0).sqrt() * 2 * math.pi
        angle = turn + self._label * math.pi
        noise = random.normal(seed, "spirals", number[:, None], 1, torch.arange(2)) * 0.1
        self._point = torch.stack([angle.cos(), angle.sin()], 1) * turn[:, None] / 3 + noise

    def __len__(self) -> int:
        return len(self._label)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return self._point[number], self._label[number]


def network() -> nn.Module:
    """A multi-layer perceptron with dropout."""
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
