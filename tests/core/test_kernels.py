"""Kernels are only used where they can be built; what is missing is named."""

import shutil

import pytest
import torch

from lockstep.core import kernels


def test_what_is_missing_is_named_one_after_the_other(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(kernels.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/gcc" if name == "gcc" else None)
    monkeypatch.setattr(kernels.sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    assert "headers" in kernels.lacking()
    (tmp_path / "Python.h").touch()
    assert kernels.lacking() is None
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "C compiler" in kernels.lacking()
    monkeypatch.setenv("CC", "tcc")
    assert kernels.lacking() is None
    monkeypatch.setattr(kernels.importlib.util, "find_spec", lambda name: None)
    assert "triton" in kernels.lacking()


@pytest.mark.parametrize("built", [True, False])
def test_kernels_fit_gpus_where_they_can_be_built(monkeypatch, built):
    monkeypatch.setattr(kernels, "_CAN_BE_BUILT", built)
    assert kernels.kernels_fit(torch.device("cuda")) is built
    assert not kernels.kernels_fit(torch.device("cpu"))
