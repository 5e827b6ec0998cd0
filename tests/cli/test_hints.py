"""A run that would be much faster otherwise says so when it starts."""

import pytest

from lockstep.cli import train
from lockstep.compute import kernels
from lockstep.launch import resources
from lockstep.workloads import registry


@pytest.mark.parametrize(
    ("device", "gpus", "missing", "word"),
    [
        ("auto", 0, None, "--preset small"),
        ("cpu", 2, "no C compiler", "--preset small"),
        ("auto", 2, "no C compiler", "no C compiler: runs on a GPU are slower"),
        ("cuda", 2, None, ""),
        ("mps", 0, "triton is missing", ""),
    ],
)
def test_hints_fit_the_machine(monkeypatch, device, gpus, missing, word):
    monkeypatch.setattr(resources, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(kernels, "missing_requirement", lambda: missing)
    workload = registry.load("snake")
    told = train.hints(workload, "base", workload.preset("base").replace(device=device))
    assert len(told) == bool(word)
    assert word in "".join(told)
