"""Kernels are used only if they can be built, by all ranks or by none; the reason is reported."""

import shutil

import pytest
import torch

from lockstep.cli import model as models
from lockstep.compute import kernels, random
from lockstep.config.run_settings import RunSettings
from lockstep.distributed import world as world_file
from lockstep.distributed.world import World
from lockstep.run import arithmetic
from lockstep.workloads import registry

GPU = torch.device("cuda")


@pytest.fixture
def able(monkeypatch, tmp_path):
    """A machine that can build kernels."""
    (tmp_path / "Python.h").touch()
    for name in ("CC", kernels.SWITCH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(kernels.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name in ("gcc", "tcc") else None)
    monkeypatch.setattr(kernels.sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    assert kernels.missing_requirement() is None
    return monkeypatch


def test_triton_is_needed(able):
    able.setattr(kernels.importlib.util, "find_spec", lambda name: None)
    assert "triton" in kernels.missing_requirement()


def test_a_c_compiler_is_needed(able):
    able.setenv("CC", "tcc")
    assert kernels.missing_requirement() is None
    able.setenv("CC", "ccache gcc")
    assert kernels.missing_requirement() == "CC='ccache gcc' is not a program"
    able.delenv("CC")
    able.setattr(shutil, "which", lambda name: None)
    assert "C compiler" in kernels.missing_requirement()


def test_headers_are_needed(able, tmp_path):
    (tmp_path / "Python.h").unlink()
    assert "headers" in kernels.missing_requirement()


def test_kernels_can_be_turned_off(able):
    able.setenv(kernels.SWITCH, "none")
    assert kernels.SWITCH in kernels.missing_requirement()


def test_kernels_are_used_on_gpus_only():
    assert not kernels.kernels_usable(torch.device("cpu"))


@pytest.mark.parametrize("everybody", [True, False])
def test_all_ranks_use_kernels_or_none_does(monkeypatch, everybody):
    monkeypatch.setattr(kernels, "_used", not everybody)
    monkeypatch.setattr(kernels, "missing_requirement", lambda: None)
    monkeypatch.setattr(World, "agree", lambda world, flag: max(flag, not everybody))
    arithmetic.fix(RunSettings(threads=1), World().with_lanes(8, "fast"))
    assert kernels.kernels_usable(GPU) is everybody


@pytest.mark.parametrize("trouble", [None, "PTXASError: too old"])
def test_a_run_on_a_gpu_tries_a_kernel_first(monkeypatch, caplog, trouble):
    monkeypatch.setattr(kernels, "_used", trouble is not None)
    monkeypatch.setattr(kernels, "missing_requirement", lambda: None)
    monkeypatch.setattr(random, "kernel_trouble", lambda device: trouble)
    arithmetic.fix(RunSettings(threads=1), World(device=GPU).with_lanes(8, "fast"))
    assert kernels.kernels_usable(GPU) is (trouble is None)
    assert ("PTXASError: too old" in caplog.text) is (trouble is not None)


def test_playing_or_evaluating_a_model_tries_a_kernel_too(monkeypatch):
    monkeypatch.setattr(kernels, "_used", True)
    monkeypatch.setattr(kernels, "missing_requirement", lambda: None)
    monkeypatch.setattr(random, "kernel_trouble", lambda device: "PTXASError: too old")
    monkeypatch.setattr(world_file, "choose_device", lambda device, rank: GPU)
    snake = registry.load("snake")
    models.place_of(models.Subject(snake, snake.preset("debug")), "auto")
    assert not kernels.kernels_usable(GPU)


def right_words(seed, purpose, *counter):
    return torch.stack(random.random_words(seed, purpose, *counter), -1)


def no_words(*_):
    raise RuntimeError("Triton Error [CUDA]: invalid argument\nand more")


@pytest.mark.parametrize(
    ("drawn", "told"),
    [
        (right_words, None),
        (lambda *counter: right_words(*counter) + 1, "it draws other numbers than the host"),
        (no_words, "RuntimeError: Triton Error [CUDA]: invalid argument"),
    ],
)
def test_kernel_trouble_is_one_line(monkeypatch, drawn, told):
    monkeypatch.setattr(random, "_words_by_kernel", drawn)
    assert random.kernel_trouble(torch.device("cpu")) == told
