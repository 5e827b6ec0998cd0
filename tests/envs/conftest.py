"""Simulations of these tests are found by worker processes, too."""

import os
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Let this process and its workers import what lies beside the tests."""
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (HERE, os.environ.get("PYTHONPATH")))))


@pytest.fixture
def points():
    """Makes environments of points, by default in this process."""
    import torch

    from lockstep.envs.hosted_env import HostedEnv
    from lockstep.envs.hosting import Simulators, Sizes

    def make(count, workers=1, first=0, length=5, timeout=300.0):
        simulators = Simulators(
            "toy_simulation:open_point", ("point",) * count, (1,) * count, Sizes(2, 1), timeout=timeout
        )
        index = torch.arange(first, first + count)
        return HostedEnv(simulators, [length] * count, index, 1, torch.device("cpu"), workers=workers)

    return make
