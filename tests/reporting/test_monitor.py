"""Telemetry: the right tags and units with GPUs, and no trouble without."""

import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from lockstep.reporting.monitor import Telemetry

HOST = {"system/cpu_percent", "system/ram_percent", "system/ram_available_gb"}


class NoSensorError(Exception):
    """Stands for NVMLError."""


def fake_nvml(count: int) -> ModuleType:
    """Two-sided: GPU i uses i + 1 of 4 GiB; GPU 1 has no power sensor."""

    def power(handle):
        if handle == 1:
            raise NoSensorError
        return 70_500

    def by_uuid(uuid):
        if uuid not in (b"GPU-aa", b"GPU-bb"):
            raise NoSensorError
        return int(uuid == b"GPU-bb")

    module = ModuleType("pynvml")
    module.NVMLError = NoSensorError
    module.NVML_TEMPERATURE_GPU = 0
    module.nvmlInit = lambda: None
    module.nvmlDeviceGetCount = lambda: count
    module.nvmlDeviceGetHandleByIndex = lambda index: index
    module.nvmlDeviceGetHandleByUUID = by_uuid
    module.nvmlDeviceGetUtilizationRates = lambda handle: SimpleNamespace(gpu=50 + handle)
    module.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(used=(handle + 1) << 30, total=4 << 30)
    module.nvmlDeviceGetTemperature = lambda handle, kind: 40 + handle
    module.nvmlDeviceGetPowerUsage = power
    return module


def first_sample() -> dict[str, float]:
    telemetry = Telemetry(interval=0.01)
    deadline = time.monotonic() + 5.0
    while not telemetry.latest() and time.monotonic() < deadline:
        time.sleep(0.01)
    telemetry.stop()
    telemetry.stop()
    return telemetry.latest()


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(2))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_every_gpu_has_its_tags_in_their_units(two_gpus):
    sample = first_sample()
    gpus = {tag: value for tag, value in sample.items() if "gpu" in tag}
    assert gpus == {
        "system/gpu0_util_percent": 50.0,
        "system/gpu0_memory_allocated_gb": 1.0,
        "system/gpu0_memory_percent": 25.0,
        "system/gpu0_temp_c": 40.0,
        "system/gpu0_power_w": 70.5,
        "system/gpu1_util_percent": 51.0,
        "system/gpu1_memory_allocated_gb": 2.0,
        "system/gpu1_memory_percent": 50.0,
        "system/gpu1_temp_c": 41.0,
    }
    assert sample.keys() - gpus.keys() == HOST


@pytest.mark.parametrize(
    ("visible", "used"),
    [("1", [2.0]), ("1, 0", [2.0, 1.0]), ("GPU-bb", [2.0]), ("", []), ("nonsense", []), ("0,-1,1", [1.0])],
)
def test_gpus_are_numbered_as_cuda_sees_them(two_gpus, monkeypatch, visible, used):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    sample = first_sample()
    assert sample.keys() >= HOST
    assert [value for tag, value in sorted(sample.items()) if tag.endswith("memory_allocated_gb")] == used


def test_a_machine_without_driver_or_library_has_host_tags_only(monkeypatch):
    def no_driver():
        raise NoSensorError("driver not loaded")

    for module in (None, SimpleNamespace(nvmlInit=no_driver)):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        sample = first_sample()
        assert sample.keys() == HOST
        assert 0.0 <= sample["system/cpu_percent"] <= 100.0
        assert 0.0 < sample["system/ram_percent"] < 100.0
        assert sample["system/ram_available_gb"] > 0.0


def test_this_machine_can_be_sampled():
    assert first_sample().keys() >= HOST
