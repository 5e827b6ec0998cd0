"""A run on disk with a network that prefers some moves to others, made without training."""

from pathlib import Path

import pytest
import torch

from lockstep.config.sources import to_yaml
from lockstep.distributed.world import World
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.weights import save_weights
from lockstep.workloads import registry
from lockstep.workloads.snake.problem import snake_problem
from lockstep.workloads.snake.workload import Snake


def _store(runs_dir, name, config, scale=100.0):
    run = RunDirectory.named(runs_dir, name)
    run.prepare()
    text = to_yaml(config)
    run.write_config(text, "snake")
    network = config.network.build(snake_problem(config.workload, World()), config)
    with torch.no_grad():
        # An untrained network holds all moves for nearly alike, and a rounding could decide between them.
        network.actor.weight *= scale
    weights = dict(network.state_dict())
    save_weights(run.path / "final", weights, config_text=text, workload="snake", step=1234, extra={})
    return run.path


@pytest.fixture
def store_run():
    """Store a run of Snake with some configuration; returns its path."""
    return _store


@pytest.fixture(scope="session")
def shared_run(tmp_path_factory) -> Path:
    """A run called `demo` on a board of 6 x 6 whose episodes end within 60 steps; not to be written into."""
    return _store(tmp_path_factory.mktemp("runs"), "demo", Snake().preset("debug").replace(grid_size=6, max_steps=60))


@pytest.fixture
def at_runs(shared_run, tmp_path, monkeypatch) -> Path:
    """A working directory with a copy of `demo` in runs/; returns the run's path."""
    import shutil

    shutil.copytree(shared_run, tmp_path / "runs" / "demo")
    monkeypatch.chdir(tmp_path)
    return Path("runs/demo")


@pytest.fixture
def at_team(tmp_path, monkeypatch):
    """A working directory with an untrained run called `team`."""
    snakes = registry.load("snakes3v3")
    config = snakes.preset("debug").replace(observation="jidi26")
    run = RunDirectory.named(tmp_path / "runs", "team")
    run.prepare()
    run.write_config(to_yaml(config), "snakes3v3")
    learner = snakes.build(config, World().with_lanes(config.effective_lanes, "fast"))
    weights = dict(learner.model.state_dict())
    save_weights(run.path / "final", weights, config_text=to_yaml(config), workload="snakes3v3", step=5, extra={})
    monkeypatch.chdir(tmp_path)
    return run.path
