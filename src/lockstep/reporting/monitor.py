"""System metrics during training: CPU, memory and GPUs, sampled on a background thread."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import torch

_GIB = float(1 << 30)


class Telemetry:
    """Samples this host once a second; without a GPU, a driver or a sensor there are fewer tags."""

    def __init__(self, interval: float = 1.0) -> None:
        self._interval = interval
        self._latest: dict[str, float] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lockstep telemetry", daemon=True)
        self._thread.start()

    def latest(self) -> dict[str, float]:
        """The newest sample by tag; empty before the first."""
        return dict(self._latest)

    def stop(self) -> None:
        """Stop sampling; may be called twice."""
        self._stopped.set()
        # With a timeout: a call into a broken driver may never return.
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        gpus = _visible_gpus()
        psutil.cpu_percent()  # psutil measures since the previous call, so the first result means nothing
        # The first sample soon, so that the first log point has one.
        pause = min(0.1, self._interval)
        while not self._stopped.wait(pause):
            sample = _sample_host()
            for index, handle in enumerate(gpus):
                sample |= {f"system/gpu{index}_{name}": value for name, value in _sample_gpu(handle).items()}
            # Replaced as a whole, never changed, so that `latest` needs no lock.
            self._latest = sample
            pause = self._interval


class ProcessUse:
    """What one rank's own process uses of its machine."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._process = device, psutil.Process()
        self._before = (time.monotonic(), time.process_time())

    def sample(self) -> dict[str, float]:
        """Memory now, and the processor time since the last call; 100 % is one core."""
        now = (time.monotonic(), time.process_time())
        wall, busy = (after - before for after, before in zip(now, self._before, strict=True))
        self._before = now
        use = {"cpu_percent": 100.0 * busy / max(wall, 1e-9), "memory_gb": self._process.memory_info().rss / _GIB}
        if self._device.type == "cuda":
            # Reserved, not allocated: what the caching allocator holds is what others cannot have.
            use["gpu_memory_gb"] = torch.cuda.memory_reserved(self._device) / _GIB
        return use


def _sample_host() -> dict[str, float]:
    memory = psutil.virtual_memory()
    return {
        "system/cpu_percent": psutil.cpu_percent(),
        "system/ram_percent": memory.percent,
        "system/ram_available_gb": memory.available / _GIB,
    }


def _sample_gpu(handle: Any) -> dict[str, float]:
    """One GPU's sensors through NVML; some cards lack some of them."""
    import pynvml

    sample: dict[str, float] = {}

    # Each sensor on its own: one that is missing must not hide the others.
    def take(read: Callable[[], dict[str, float]]) -> None:
        with contextlib.suppress(pynvml.NVMLError):
            sample.update(read())

    def memory() -> dict[str, float]:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return {"memory_allocated_gb": info.used / _GIB, "memory_percent": 100.0 * info.used / info.total}

    take(lambda: {"util_percent": float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)})
    take(memory)
    take(lambda: {"temp_c": float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))})
    take(lambda: {"power_w": pynvml.nvmlDeviceGetPowerUsage(handle) / 1000.0})  # NVML reports milliwatts
    return sample


def _visible_gpus() -> list[Any]:
    """NVML handles of the GPUs that CUDA sees, in CUDA's numbering; empty without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver or a mismatch of the two: there is nothing to sample
        return []
    # NVML knows nothing of this variable, and numbers all GPUs of the machine.
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    handles = []
    # Like CUDA, stop at the first entry that is not a device.
    with contextlib.suppress(pynvml.NVMLError):
        for name in chosen.split(",") if chosen is not None else map(str, range(pynvml.nvmlDeviceGetCount())):
            handles.append(_handle(name.strip()))
    return handles


def _handle(name: str) -> Any:
    """A GPU by its number or its UUID, the two spellings of CUDA_VISIBLE_DEVICES."""
    import pynvml

    if name.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(name))
    return pynvml.nvmlDeviceGetHandleByUUID(name.encode())
