"""`lockstep record`: episodes of a model, of a baseline and of another program as files."""

import numpy as np
import pytest
import torch

pytest.importorskip("dm_control")

import lockstep
from lockstep.cli.main import main
from lockstep.config.sources import to_yaml
from lockstep.errors import UserError
from lockstep.storage.run_directory import RunDirectory
from lockstep.storage.weights import save_weights
from lockstep.workloads.control.env import task_facts
from lockstep.workloads.control.episodes import EpisodeFiles
from lockstep.workloads.control.problem import control_problem
from lockstep.workloads.control.workload import Control

CONFIG = Control().preset("debug").replace(task="cartpole-balance", episode_length=6)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a run called `pole`, made without training."""
    folder = tmp_path_factory.mktemp("runs")
    run = RunDirectory.named(folder, "pole")
    run.prepare()
    text = to_yaml(CONFIG)
    run.write_config(text, "control")
    network = CONFIG.network.build(control_problem(CONFIG.workload), CONFIG.replace(seed=1))
    weights = dict(network.state_dict())
    save_weights(run.path / "final", weights, config_text=text, workload="control", step=7, extra={})
    return folder


@pytest.fixture
def place(runs, tmp_path, monkeypatch):
    (tmp_path / "runs").symlink_to(runs)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complaint(capsys, *words):
    assert main(["record", *words]) == 2
    message = capsys.readouterr().err
    assert len(message.splitlines()) == 1
    return message


def test_the_recorded_episodes_are_those_that_eval_plays(place, capsys):
    assert main(["record", "pole", "--episodes", "3", "--seed", "5", "--output", "data"]) == 0
    assert "data: 3 episodes, 18 steps" in capsys.readouterr().out
    files = EpisodeFiles(place / "data", task_facts(CONFIG.workload))
    recorded = [float(episode.reward.sum()) for episode in files.episodes(range(3))]
    evaluated = lockstep.evaluate("pole", episodes=3, seed=5)["episode_returns"]
    assert recorded == pytest.approx(evaluated, abs=1e-3)


def test_a_baseline_is_recorded_without_a_run(place, capsys):
    words = ["task=pendulum-swingup", "episode_length=3", "env_workers=1"]
    assert main(["record", "control", "--policy", "random", "--episodes", "2", "--output", "deep/data", *words]) == 0
    assert "2 episodes, 6 steps" in capsys.readouterr().out


def test_what_is_missing_is_told_in_one_line(place, capsys):
    assert "--output is missing" in complaint(capsys, "pole")
    (place / "file").touch()
    assert "is a file" in complaint(capsys, "pole", "--output", "file")
    assert "no chunks" in complaint(capsys, "control", "task=mt30", "--source", "nowhere", "--output", "x")
    assert "allowed: trained, random, zero" in complaint(capsys, "pole", "--policy", "nobody", "--output", "x")
    assert "snake: cannot record episodes; workloads that can: control" in complaint(
        capsys, "snake", "--policy", "random", "--output", "x"
    )


def test_a_loaded_model_acts_in_vectors(place):
    policy = lockstep.load("pole", device="cpu")
    actions = policy.act(np.zeros((3, 5), np.float32))
    assert actions.shape == (3, 1) and np.abs(actions).max() <= 1
    again = policy.act(torch.zeros(3, 5))
    assert np.array_equal(actions, again) and not np.shares_memory(actions, again)
    noisy = [policy.act(torch.zeros(3, 5), deterministic=False) for _ in range(2)]
    assert not np.array_equal(actions, noisy[0]) and not np.array_equal(noisy[0], noisy[1]), "noise is drawn anew"
    with pytest.raises(UserError, match="no probability"):
        policy.probabilities(np.zeros((3, 5), np.float32))
    with pytest.raises(UserError, match=r"observations of shape \(3, 4\)"):
        policy.act(np.zeros((3, 4), np.float32))
