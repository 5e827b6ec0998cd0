"""Lockstep from Python: train here or in processes of their own, load, act, evaluate."""

import io
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

import lockstep
from lockstep import api
from lockstep.cli.main import main
from lockstep.errors import RunFailed, UserError, from_json, to_json
from lockstep.storage.manifest import CheckpointFailed
from lockstep.workloads.snake.env import SnakeEnv
from lockstep.workloads.snake.rules import SnakeRules


class NotebookOutput(io.TextIOBase):
    """A stdout as notebooks have it: it can be written to, and there is no file behind it."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text
        return len(text)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short run of two ranks and what it printed."""
    before, sys.stdout = sys.stdout, NotebookOutput()
    try:
        folder = tmp_path_factory.mktemp("runs")
        run = lockstep.train("snake", preset="debug", ranks=2, runs_dir=folder, max_updates=2, learning_rate=1e-3)
        return run, sys.stdout.text
    finally:
        sys.stdout = before


def boards(grid_size, count=6):
    return SnakeEnv(SnakeRules(grid_size=grid_size), torch.arange(count), 0, torch.device("cpu")).reset()


def test_training_gives_a_run_and_passes_its_lines_on(trained):
    run, printed = trained
    assert run.path.is_absolute()
    assert run.name == run.path.name
    assert run.name.startswith("snake-")
    assert run.config["learning_rate"] == 1e-3
    assert run.config["run_name"] == run.name
    assert [point["step"] for point in run.metrics()] == [256, 512]
    assert "time/fps_rank1" in run.metrics()[-1], "the second rank took part"
    assert (run.final / "model.safetensors").exists()
    assert run.best == run.path / "best"
    assert "ranks        2" in printed
    assert "done: 512 steps" in printed


def test_a_policy_acts_on_arrays_and_tensors_alike(trained):
    run, _ = trained
    policy = lockstep.load(run)
    assert (policy.workload, policy.step, repr(policy)) == ("snake", 512, "Policy(snake, step 512)")
    observation = boards(run.config["grid_size"])
    actions, chances = policy.act(observation), policy.probabilities(observation)
    assert actions.shape == (6,)
    assert chances.shape == (6, 4)
    np.testing.assert_allclose(chances.sum(1), 1, atol=1e-6)
    assert actions.tolist() == chances.argmax(1).tolist()
    assert policy.act(observation.numpy().astype(np.float32)).tolist() == actions.tolist()


def test_a_checkpoint_can_be_loaded_as_well(trained, monkeypatch):
    (checkpoint,) = (trained[0].path / "checkpoints").iterdir()
    monkeypatch.chdir(checkpoint)
    assert lockstep.load(".").step == lockstep.load(checkpoint / "model.safetensors").step == 512


def test_drawn_actions_follow_the_probabilities(trained):
    run, _ = trained
    policy = lockstep.load(run.final)
    many = boards(run.config["grid_size"], count=1).expand(4000, -1, -1, -1)
    drawn = np.bincount(policy.act(many, deterministic=False), minlength=4) / 4000
    np.testing.assert_allclose(drawn, policy.probabilities(many)[0], atol=0.04)
    assert (policy.act(many, deterministic=False) != policy.act(many, deterministic=False)).any()


def test_observations_of_another_shape_are_refused_in_one_line(trained):
    policy = lockstep.load(trained[0])
    with pytest.raises(UserError, match=r"shape \(2, 3, 20, 20\)"):
        policy.act(np.zeros((2, 3, 20, 20), np.float32))


def test_an_evaluation_is_what_the_command_prints(trained, capsys):
    run, _ = trained
    before = (run.path / "evaluation.json").read_bytes()
    found = lockstep.evaluate(run, episodes=5, seed=9)
    assert (run.path / "evaluation.json").read_bytes() == before
    assert main(["eval", str(run.path), "--episodes", "5", "--seed", "9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    with pytest.raises(UserError, match="episodes 0"):
        lockstep.evaluate(run, episodes=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rat": 1.0}, "the nearest name is learning_rate"),
        ({"n_envs": 7}, "n_envs 7 must be a multiple"),
        ({"preset": "tiny"}, "unknown preset of snake"),
        ({"normalize_advantage": "maybe"}, "true or false"),
        ({"run_name": "../up"}, "run name"),
        ({"config": "nowhere.yaml"}, "no such file"),
    ],
)
def test_what_is_wrong_is_raised_before_a_process_starts(settings, message, monkeypatch, tmp_path):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        lockstep.train("snake", **{"preset": "debug", **settings})
    assert list(tmp_path.iterdir()) == []


def test_what_only_the_process_can_know_is_raised_after_it(tmp_path, capsys):
    with pytest.raises(UserError, match="give one of them") as raised:
        lockstep.train("snake", preset="debug", gpus=1, ranks=1, runs_dir=tmp_path, quiet=True)
    assert raised.value.exit_code == 2
    assert capsys.readouterr().out == ""


def test_an_error_of_a_rank_is_raised_as_it_was_there(tmp_path):
    with pytest.raises(UserError, match="ranks 9 is more than the run's 8 lanes") as raised:
        lockstep.train("snake", preset="debug", ranks=9, runs_dir=tmp_path, quiet=True)
    assert raised.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_failed_run_says_which_rank_failed_and_why(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_FAULTS", "raise@rank=1,at=1,attempt=0..")
    with pytest.raises(RunFailed, match=r"rank 1 ended with exit code 1 at .*planted by a failpoint"):
        lockstep.train("snake", preset="debug", ranks=2, runs_dir=tmp_path, quiet=True)


def test_a_command_that_could_not_say_why_it_ended_has_its_signal_or_exit_code():
    assert "was killed by SIGKILL" in str(api._unexplained(-9))
    assert "ended with exit code 7" in str(api._unexplained(7))


def test_errors_survive_a_way_through_json():
    error = CheckpointFailed("disk full")
    error.details = ("a line",)
    again = from_json(json.loads(json.dumps(to_json(error))))
    assert (type(again), str(again), again.details) == (CheckpointFailed, "disk full", ("a line",))
    assert type(from_json({"kind": "Unheard", "message": "x", "details": []})) is RunFailed


def test_one_rank_trains_in_this_process_and_leaves_its_arithmetic_as_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(api, "_run_command", lambda *_: pytest.fail("a process was started"))
    before = (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())
    run = lockstep.train("snake", preset="debug", ranks=1, device="cpu", max_updates=1, threads=2, runs_dir=tmp_path)
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before
    assert "done: 256 steps" in capsys.readouterr().out
    assert (run.status.state, run.status.step) == ("stopped", 256)
    assert run.weights().keys() == run.weights("step-000000000256").keys()


def test_an_interrupt_stops_the_run_which_saves_first(tmp_path, monkeypatch):
    class Interrupting(NotebookOutput):
        def write(self, text):
            interrupt = text.startswith("step ") and "step " not in self.text
            super().write(text)
            if interrupt:
                os.kill(os.getpid(), signal.SIGINT)
            return len(text)

    monkeypatch.setattr(sys, "stdout", Interrupting())
    with pytest.raises(KeyboardInterrupt):
        lockstep.train("snake", preset="debug", total_timesteps=10_000_000, runs_dir=tmp_path, run_name="long")
    assert len(list((tmp_path / "long" / "checkpoints").glob("step-*"))) >= 1
    assert not (tmp_path / "long" / "final").exists()
    assert lockstep.load(tmp_path / "long").step > 0


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert lockstep.Run(tmp_path).metrics() == [{"step": 1}, {"step": 2}]
    assert lockstep.Run(str(tmp_path / "none")).metrics() == []
