"""The short examples of own problems, run as a user would, from a folder outside the repository."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

import lockstep
from lockstep.cli.main import main

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORT = {"preset": "debug", "max_updates": 2, "threads": 1, "eval_every": 0, "quiet": True}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Another folder, from which the examples are found as modules, by workers, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(EXAMPLES), os.environ.get("PYTHONPATH")))))
    return tmp_path


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


def test_a_registered_environment_from_python(elsewhere):
    run, score = example("cartpole").main(**SHORT)
    assert run.status.step == 2 * 256 and score >= 8


@pytest.mark.parametrize("name", ["maze.py", "tensor_env.py"])
def test_a_file_of_mine(elsewhere, name):
    arguments = ["--preset", "debug", "--max-updates", "2", "--threads", "1", "--run-name", "mine"]
    assert main(["train", str(EXAMPLES / name), *arguments]) == 0
    assert main(["eval", "runs/mine", "--episodes", "2"]) == 0


def test_a_maze_is_without_fault(elsewhere, capsys):
    assert main(["check", str(EXAMPLES / "maze.py"), "--steps", "60", "--ranks", "1"]) == 0
    assert main(["check", "tensor_env:Table", "--steps", "60", "--ranks", "1"]) == 0


@pytest.mark.parametrize(("name", "package"), [("vmas_env:Balance", "vmas"), ("jax_env:Pendulums", "jax")])
def test_environments_of_other_frameworks(elsewhere, name, package):
    pytest.importorskip(package)
    assert lockstep.train(name, runs_dir=elsewhere, **SHORT).status.step == 2 * 256
    assert main(["check", name, "--steps", "60", "--ranks", "1"]) == 0


def test_an_installed_package_announces_a_workload(elsewhere, monkeypatch):
    from importlib.metadata import EntryPoint

    from lockstep.workloads import registry

    point = EntryPoint("labyrinth", "maze:Maze", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "_installed", lambda: {"labyrinth": point})
    registry.load.cache_clear()
    assert registry.load("labyrinth").defaults["env_id"] == "maze:Maze"
    registry.load.cache_clear()


SCORES = {
    "CartPole-v1": (475, {"total_timesteps": 150_000}),
    "Pendulum-v1": (
        -250,
        {
            "total_timesteps": 150_000,
            "n_envs": 8,
            "n_steps": 256,
            "learning_rate": 1e-3,
            "gamma": 0.9,
            "normalize_reward": True,
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORES)
def test_environments_are_learned(elsewhere, name):
    score, settings = SCORES[name]
    run = lockstep.train("gym", env_id=name, runs_dir=elsewhere, eval_every=50_000, quiet=True, **settings)
    assert lockstep.evaluate(run, episodes=50)["return_mean"] >= score
