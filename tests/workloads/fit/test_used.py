"""Trained modules away from their data: loaded in Python, as ONNX graphs, as programs of torch."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import lockstep
from lockstep.cli.main import main
from lockstep.errors import UserError
from lockstep.workloads.fit.outline import outline, stand_in

MINE = '''
import os, torch, lockstep
from torch import nn

class Sum(nn.Module):
    """Takes two inputs by name, and gives two outputs; its first layer takes the size of what it sees."""
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.LazyLinear(8), nn.Linear(2, 8)
    def forward(self, left, right):
        found = (self.left(left) + self.right(right)).tanh()
        return found.sum(1), found

class Pairs(torch.utils.data.Dataset):
    def __init__(self):
        assert "NO_DATA" not in os.environ, "the data was opened"
    def __len__(self):
        return 40
    def __getitem__(self, i):
        return {"left": torch.full((3,), i / 40), "right": torch.ones(2), "target": torch.tensor(i / 40)}

def error(prediction, target):
    return (prediction[0] - target).square()

class Mine(lockstep.Fit):
    name = "mine"
    defaults = {"loss": "%s:error", "batch_size": 8, "epochs": 1, "lanes": 2, "patience": 0}
    def model(self):
        return Sum()
    def train_set(self):
        return Pairs()
    val_set = train_set
'''
INPUTS = {"left": np.array([[1, 2, 3], [0, 0, 1]], np.float32), "right": np.array([[1, 0], [0, 2]], np.float32)}
READER = """
import sys, torch
sys.modules["lockstep"] = None  # importing it fails
inputs = torch.load(sys.argv[1], weights_only=True)
torch.save(torch.export.load(sys.argv[2]).module()(*inputs), sys.argv[3])
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(MINE % (folder / "mine.py"))
    return lockstep.train(f"{folder}/mine.py:Mine", ranks=1, device="cpu", runs_dir=folder / "runs", quiet=True)


@pytest.fixture
def no_data(monkeypatch):
    monkeypatch.setenv("NO_DATA", "yes")


def test_a_loaded_module_predicts_without_its_data(run, no_data, tmp_path):
    file = tmp_path / "model.safetensors"
    assert main(["export", str(run.path), "--output", str(file)]) == 0
    for source in (run, next((run.path / "checkpoints").iterdir()), file):
        model = lockstep.load(source)
        total, parts = model.predict(INPUTS)
        assert total.shape == (2,) and parts.shape == (2, 8)
        alone = model.predict({name: value[1] for name, value in INPUTS.items()})
        np.testing.assert_allclose(alone[1], parts[1], atol=1e-6)
    with pytest.raises(UserError, match=r"the module was trained on \(3,\), \(2,\)"):
        model.predict({**INPUTS, "left": np.zeros((2, 4), np.float32)})


def test_an_evaluation_still_reads_the_data_and_a_resume_too(run, monkeypatch):
    assert lockstep.evaluate(run)["samples"] == 40
    monkeypatch.setenv("NO_DATA", "yes")
    with pytest.raises(Exception, match="the data was opened"):
        lockstep.evaluate(run)


def test_an_onnx_graph_predicts_the_same(run, no_data, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    file = tmp_path / "model.onnx"
    assert main(["export", str(run.path), "--format", "onnx", "--output", str(file)]) == 0
    session = onnxruntime.InferenceSession(file)
    expected = lockstep.load(run).predict(INPUTS)
    for found, wanted in zip(session.run(["output_0", "output_1"], INPUTS), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_program_of_torch_predicts_the_same_where_there_is_no_lockstep(run, no_data, tmp_path):
    paths = [tmp_path / name for name in ("inputs.pt", "model.pt2", "outputs.pt")]
    assert main(["export", str(run.path), "--format", "torch", "--output", str(paths[1])]) == 0
    torch.save(tuple(torch.from_numpy(value) for value in INPUTS.values()), paths[0])
    subprocess.run([sys.executable, "-c", READER, *map(str, paths)], check=True)
    for found, wanted in zip(torch.load(paths[2], weights_only=True), lockstep.load(run).predict(INPUTS), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, atol=1e-6)


def test_an_outline_keeps_structure_types_and_shapes():
    item = {"a": torch.zeros(2, 3), 7: (torch.zeros((), dtype=torch.int64), torch.ones(4, dtype=torch.uint8))}
    again = stand_in(outline(item))
    assert outline(again) == outline(item) and list(again) == ["a", 7] and again[7][1].dtype == torch.uint8


@pytest.mark.parametrize(
    "damaged",
    [5, {}, {"dtype": "float32", "shape": [1 << 40]}, {"dtype": "load", "shape": [1]}, {"tuple": 3}, {"dict": [[1]]}],
)
def test_a_damaged_outline_is_refused_in_one_line(damaged):
    with pytest.raises(UserError, match="what it says about a sample of its data is damaged"):
        stand_in(damaged)
