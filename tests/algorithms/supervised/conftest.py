"""Points in a plane whose class is the sign of their first number, in three groups of different widths."""

import pytest
import torch
from torch import nn

from lockstep.algorithms.supervised.algorithm import Supervised
from lockstep.algorithms.supervised.problem import DataProblem
from lockstep.algorithms.supervised.settings import SupervisedSettings
from lockstep.compute import random
from lockstep.compute.ops.dropout import NoiseDropout
from lockstep.config.config import Layout
from lockstep.distributed.world import World
from lockstep.rl.network_settings import MLPSettings


class Points:
    """Group g has vectors of 2 + g numbers: the second is g, those after it are noise."""

    classes = 2

    def __init__(self, sizes, seed=1):
        self.sizes, self.seed = tuple(sizes), seed
        self.read = []

    def inputs(self, group, index):
        columns = torch.arange(2 + group)
        values = random.normal(self.seed, f"group {group}", index[:, None], 0, columns)
        values[:, 1] = group
        return values

    def labels(self, group, index):
        return (random.normal(self.seed, f"group {group}", index, 0, 0) > 0).long()


class Net(nn.Module):
    def __init__(self, rate=0.25):
        super().__init__()
        torch.manual_seed(3)
        self.inner, self.outer = nn.Linear(2, 8), nn.Linear(8, 2)
        self.dropout = NoiseDropout(rate, "inner")

    def forward(self, inputs, noise):
        return self.outer(self.dropout(torch.tanh(self.inner(inputs[:, :2])), noise))


def configured(**values):
    """A configuration of supervised learning alone, without a workload."""
    return Layout(SupervisedSettings, network=MLPSettings).config(values)


def build(world=None, sizes=(50, 0, 21, 30), data_digest="", network=None, **changes):
    settings = {"epochs": 3, "batch_size": 16, "eval_batch_size": 16, "lanes": 4, "lr_schedule": "constant"}
    config = configured(**settings | changes)
    world = (world or World()).with_lanes(config.effective_lanes, config.sync_on("cpu"))
    validation = Points((9, 0, 14, 3), seed=2)
    problem = DataProblem(name="points", train=Points(sizes), validation=validation, data_digest=data_digest)
    return Supervised().learner(config, world, problem, network or Net())


@pytest.fixture(name="configured")
def fixture_configured():
    return configured


@pytest.fixture(name="build")
def fixture_build():
    return build


@pytest.fixture(name="points")
def fixture_points():
    return Points
