"""A run that would be much faster otherwise says so when it starts."""

from dataclasses import replace

import pytest

from lockstep.core import kernels, launch
from lockstep.verbs import train
from lockstep.workloads import registry


@pytest.mark.parametrize(
    ("device", "gpus", "lack", "word"),
    [
        ("auto", 0, None, "--preset small"),
        ("cpu", 2, "a C compiler", "--preset small"),
        ("auto", 2, "a C compiler", "a C compiler is missing"),
        ("cuda", 2, None, ""),
        ("mps", 0, "the package triton", ""),
    ],
)
def test_hints_fit_the_machine(monkeypatch, device, gpus, lack, word):
    monkeypatch.setattr(launch, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(kernels, "lacking", lambda: lack)
    workload = registry.load("snake")
    told = train.hints(workload, "base", replace(workload.preset("base"), device=device))
    assert len(told) == bool(word)
    assert word in "".join(told)
