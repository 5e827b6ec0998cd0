"""Exported networks: the same probabilities from plain torch and ONNX, for any batch."""

import pytest
import torch

from lockstep.distributed.world import World
from lockstep.errors import UserError
from lockstep.storage import program_file
from lockstep.workloads.cricket.workload import Cricket


@pytest.fixture(scope="module")
def league(tmp_path_factory):
    return (
        Cricket()
        .preset("debug")
        .replace(cache_dir=str(tmp_path_factory.mktemp("cache")), threads=1, device="cpu", drop_relations="ball")
    )


def build(config):
    return Cricket().build(config, World().with_lanes(config.effective_lanes, "fast"))


def test_an_exported_network_gives_the_same_probabilities(league, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    learner = build(league)
    with torch.no_grad():
        for weight in learner.model.parameters():
            # An untrained head ignores its input.
            weight += 0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(len(weight)))
    program = Cricket().program(league, learner)
    names = list(program.inputs)
    table = Cricket().problem(league, World()).validation
    samples = table.inputs(0, torch.arange(5))
    expected = learner.predict(samples).exp()
    inputs = [getattr(samples, name) for name in names]
    assert not torch.allclose(expected[0], expected[1])

    program_file.write("torch", program, tmp_path / "model.pt2")
    found = torch.export.load(tmp_path / "model.pt2").module()(*inputs)[0]
    assert torch.allclose(found, expected, atol=1e-6)
    program_file.write("onnx", program, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (found,) = session.run(None, {name: value.numpy() for name, value in zip(names, inputs, strict=True)})
    assert torch.allclose(torch.tensor(found), expected, atol=1e-5)


def test_a_network_that_reads_earlier_balls_is_refused_in_one_line(league):
    whole = league.replace(drop_relations="same_over")
    with pytest.raises(UserError, match="reads every earlier ball"):
        Cricket().program(whole, build(whole))
