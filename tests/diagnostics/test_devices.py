"""Findings about GPUs and versions."""

from types import SimpleNamespace

import pytest

from lockstep.diagnostics import devices


@pytest.mark.parametrize(
    ("version", "verdict"), [("2.13.0+cpu", "ok"), ("2.10.1", "ok"), ("2.9.1", "bad"), ("1.13", "bad")]
)
def test_a_torch_that_runs_code_from_files_is_bad(version, verdict):
    assert devices.versions(version).verdict == verdict


class Driver:
    """Stands in for the driver of a machine with one GPU."""

    NVMLError = RuntimeError
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, processes=(), degrees=40):
        self.processes, self.degrees = processes, degrees

    def nvmlInit(self): ...

    def nvmlShutdown(self): ...

    def nvmlSystemGetDriverVersion(self):
        return b"580.1"

    def nvmlDeviceGetCount(self):
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, handle):
        return "H200"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(free=100 * 2**30, total=140 * 2**30)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid) for pid in self.processes]

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return self.degrees


def test_a_gpu_is_described_by_its_driver(monkeypatch):
    monkeypatch.setattr(devices, "pynvml", Driver())
    first = devices.gpus()[0]
    assert first.verdict == "ok"
    assert first.what == "H200, driver 580.1, 100.0 of 140.0 GiB free"


def test_a_gpu_that_others_use_is_a_warning_and_so_is_a_hot_one(monkeypatch):
    monkeypatch.setattr(devices, "pynvml", Driver(processes=[1]))
    busy = devices.gpus()[0]
    assert busy.verdict == "warn"
    assert "process 1" in busy.what
    monkeypatch.setattr(devices, "pynvml", Driver(degrees=90))
    assert devices.gpus()[0].verdict == "warn"


def test_gpus_that_torch_cannot_use_are_bad(monkeypatch):
    monkeypatch.setattr(devices, "pynvml", Driver())
    monkeypatch.setattr(devices.torch.cuda, "device_count", lambda: 0)
    last = devices.gpus()[-1]
    assert last.verdict == "bad"
    assert "torch can use none" in last.what


def test_a_machine_that_cannot_build_kernels_is_told_what_it_lacks():
    assert devices.compilers(None).verdict == "ok"
    found = devices.compilers("a C compiler (gcc or clang) is missing")
    assert found.verdict == "warn"
    assert "C compiler" in found.what
