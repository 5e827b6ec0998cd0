"""`lockstep.fit` and `lockstep.Fit`: scikit-learn's digits from Python and from the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import lockstep
from lockstep.cli.main import main
from lockstep.errors import UserError
from lockstep.launch import given
from lockstep.storage.checkpoint import weights_hash
from lockstep.workloads import registry

datasets = pytest.importorskip("sklearn.datasets", reason="the digits are scikit-learn's")
EXAMPLES = Path(__file__).parents[3] / "examples"


def digits(first, last):
    pixels, labels = datasets.load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[first:last]
    return TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32)[order], torch.tensor(labels)[order])


def network():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))


def fit(folder, model=None, **settings):
    """A short run on objects that no module knows."""
    common = {"batch_size": 64, "epochs": 2, "learning_rate": 1e-2, "device": "cpu", "quiet": True, "sync": "exact"}
    metrics = {"second": lambda prediction, target: (prediction.topk(2).indices[:, 1] == target).float()}
    train, val = digits(0, 500), digits(1500, 1797)
    return lockstep.fit(model or network(), train, val, metrics=metrics, runs_dir=folder, **common | settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("runs"), ranks=1)


def test_a_run_measures_every_metric_and_keeps_the_users_module(run):
    last = run.metrics()[-1]
    assert {"eval/loss", "eval/log_loss", "eval/accuracy", "eval/second", "train/accuracy"} <= last.keys()
    assert last["eval/accuracy"] > 0.3, "one in ten by chance"
    assert not torch.equal(run.weights()["network.net.0.weight"], network()[0].weight)


def test_eval_measures_what_the_run_measured(run, capsys):
    last, found = run.metrics()[-1], lockstep.evaluate(run)
    assert found["samples"] == 297
    for name in ("loss", "accuracy", "second"):
        assert found[name] == pytest.approx(last[f"eval/{name}"], rel=1e-6)
    assert main(["eval", str(run.path), "--part", "train"]) == 0
    assert "500 samples of train" in capsys.readouterr().out
    assert main(["eval", str(run.path), "--part", "test"]) == 2
    assert "--part test: fit has none; allowed: validation, train" in capsys.readouterr().err


def test_a_loaded_run_predicts_for_a_batch_and_for_one(run):
    model, (pixels, labels) = lockstep.load(run), digits(1500, 1797).tensors
    logits = model.predict(pixels)
    assert logits.shape == (297, 10)
    assert (logits.argmax(1) == labels.numpy()).mean() == pytest.approx(run.metrics()[-1]["eval/accuracy"])
    np.testing.assert_allclose(model.predict(pixels[3].double().numpy()), logits[3], atol=1e-6)
    assert model.act(pixels).tolist() == logits.argmax(1).tolist()
    np.testing.assert_allclose(model.probabilities(pixels[:2]).sum(1), 1, atol=1e-6)
    with pytest.raises(UserError, match=r"inputs of shape \(2, 63\): the module was trained on \(64,\)"):
        model.predict(np.zeros((2, 63)))


@pytest.mark.slow
def test_two_ranks_one_of_which_is_killed_end_in_the_same_bits(run, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_FAULTS", "kill@rank=1,at=9,attempt=0")
    other = fit(tmp_path, ranks=2, checkpoint_every=256)
    assert weights_hash(other.weights()) == weights_hash(run.weights())
    assert other.metrics()[-1]["eval/loss"] == run.metrics()[-1]["eval/loss"]


def test_a_run_is_continued_with_the_same_objects(run, tmp_path):
    fit(tmp_path, ranks=1, run_name="halves", max_updates=5)
    again = fit(tmp_path, ranks=1, run_name="halves", max_updates=0)
    assert weights_hash(again.weights()) == weights_hash(run.weights())
    with pytest.raises(UserError, match="was started with model 'given/model-Sequential-"):
        fit(tmp_path, nn.Sequential(nn.Linear(64, 10)), ranks=1, run_name="halves")


def test_what_cannot_be_sent_to_ranks_is_told_before_they_start(tmp_path):
    class Locked(TensorDataset):
        def __init__(self):
            super().__init__(torch.zeros(20, 64), torch.zeros(20, dtype=torch.int64))
            self.stream = (number for number in range(3))

    with pytest.raises(UserError, match=r"given/train_data-Locked: cannot be sent to other processes .*generator"):
        lockstep.fit(network(), Locked(), digits(0, 20), ranks=2, runs_dir=tmp_path, quiet=True)


def test_objects_that_are_gone_are_asked_for(run):
    code = "import sys, lockstep; lockstep.load(sys.argv[1])"
    elsewhere = {name: value for name, value in os.environ.items() if name != given.VARIABLE}
    words = [sys.executable, "-c", code, str(run.path)]
    done = subprocess.run(words, env=elsewhere, capture_output=True, text=True, check=False)
    assert "was given to lockstep.train or lockstep.fit as a Python object, which is not stored" in done.stderr


@pytest.fixture
def outside(tmp_path, monkeypatch, capsys):
    """A working directory elsewhere, with nothing but the example; its modules are forgotten afterwards."""
    (tmp_path / "digits.py").write_text((EXAMPLES / "digits.py").read_text())
    parts = ("from digits import digits", "def train(): return digits(0, 1500)", "def val(): return digits(1500, 1797)")
    (tmp_path / "parts.py").write_text("\n".join(parts))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def command(*words):
        capsys.readouterr()
        assert main(list(words)) == 0
        return capsys.readouterr().out

    yield command
    registry.load.cache_clear()
    for name in ("digits", "parts"):
        sys.modules.pop(name, None)


def weights_of(name):
    return Path("runs", name, "final", "model.safetensors").read_bytes()


def test_a_file_trains_and_resumes_and_so_do_its_functions_by_name(outside):
    common = ("--device", "cpu", "--sync", "exact", "--batch-size", "128", "--epochs", "1", "--ranks", "1")
    common += ("--learning-rate", "1e-3", "--ema-decay", "0")
    outside("train", "./digits.py", *common, "--run-name", "whole")
    outside("train", "./digits.py", *common, "--run-name", "halves", "--max-updates", "5")
    outside("resume", "halves", "--max-updates", "0", "--ranks", "2")
    assert weights_of("halves") == weights_of("whole")
    found = json.loads(outside("eval", "whole", "--json"))
    assert (found["workload"], found["samples"]) == ("digits", 297)
    names = ("--model", "digits.py:network", "--train-data", "parts.py:train", "--val-data", "parts.py:val")
    outside("train", "fit", *common, *names, "--run-name", "named")
    assert weights_of("named") == weights_of("whole")


@pytest.mark.slow
def test_a_file_is_proved(outside):
    assert "same model on 1 to 3 ranks" in outside("verify", "./digits.py", "--ranks", "1,2,3", "--device", "cpu")


@pytest.mark.slow
def test_digits_are_learned_to_98_percent(outside):
    outside("train", "./digits.py", "--device", "cpu", "--ranks", "1", "--threads", "1", "--run-name", "digits")
    assert json.loads(outside("eval", "runs/digits/best", "--json"))["accuracy"] >= 0.98
