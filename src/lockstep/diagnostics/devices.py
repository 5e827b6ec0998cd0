"""Checks of the GPUs: their driver, other processes on them, and whether this build of torch can use them."""

import os
import platform
from typing import Any

import psutil
import pynvml
import torch

from lockstep.compute.kernels import missing_requirement
from lockstep.compute.random import kernel_trouble
from lockstep.diagnostics.finding import Finding, bad, ok, warn
from lockstep.distributed.nccl import RankFacts, backend_for

# As in pyproject.toml.
_OLDEST_TORCH = (2, 10)
_GIB = 2**30
# Degrees Celsius at which data-centre GPUs begin to throttle.
_HOT = 85


def look_at_devices() -> list[Finding]:
    """Check the versions and every GPU of this machine."""
    return [versions(torch.__version__), *gpus()]


def versions(torch_version: str) -> Finding:
    """Check that torch is not older than Lockstep supports."""
    found = f"torch {torch_version}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    # Compared as numbers: as text, 2.9 would be newer than 2.10.
    if tuple(int(part) for part in torch_version.split(".")[:2]) < _OLDEST_TORCH:
        return bad("versions", found, "pip install 'torch>=2.10': older versions run code from files they load")
    return ok("versions", found)


def gpus() -> list[Finding]:
    """One finding for each GPU that the driver knows, then whether torch and the kernels can use them."""
    # The driver counts all GPUs of the machine, torch those that it can use: a difference is the most common problem.
    seen = _from_driver()
    usable = torch.cuda.device_count()
    if not seen and not usable:
        mps = torch.backends.mps.is_available()
        return [ok("devices", "Apple GPU (MPS)" if mps else "no NVIDIA GPU: runs use the CPU, backend gloo")]
    found = list(seen)
    if not usable:
        cpu_build = torch.version.cuda is None
        fix = "install the CUDA build of torch" if cpu_build else "check CUDA_VISIBLE_DEVICES and nvidia-smi"
        found.append(bad("devices", f"the driver knows {len(seen)} GPU(s), torch can use none", fix))
    else:
        carrier = backend_for([RankFacts.of(torch.device("cuda"))])
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = f"{usable} GPU(s) usable" + (f", CUDA_VISIBLE_DEVICES={chosen}" if chosen else "")
        found.append(ok("devices", f"{devices}; CUDA {torch.version.cuda}, between ranks {carrier.description}"))
        found.append(compilers(missing_requirement() or kernel_trouble(torch.device("cuda"))))
    return found


def compilers(trouble: str | None) -> Finding:
    """Whether Lockstep's own kernels work on the GPUs; `trouble`: why not."""
    if trouble is None:
        return ok("kernels", "one was built, and draws the same random numbers as the host")
    return warn("kernels", f"cannot be used: {trouble}", "fix it; until then runs on a GPU are slower")


def _from_driver() -> list[Finding]:
    """One finding for each GPU of the machine, by the driver's own library."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, so no NVIDIA GPU
        return []
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [_one_gpu(f"GPU {index}", handle, driver) for index, handle in enumerate(handles)]
    except pynvml.NVMLError as error:
        return [bad("devices", f"the driver does not answer: {error}", "nvidia-smi says more; a reboot may be due")]
    finally:
        pynvml.nvmlShutdown()


def _one_gpu(subject: str, handle: Any, driver: str) -> Finding:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    room = f"{memory.free / _GIB:.1f} of {memory.total / _GIB:.1f} GiB free"
    found = f"{_text(pynvml.nvmlDeviceGetName(handle))}, driver {driver}, {room}"
    others = [_process(running.pid) for running in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    others = [name for name in others if name]
    if others:
        fix = "end them, or leave this GPU out with CUDA_VISIBLE_DEVICES"
        return warn(subject, f"{found}; in use by {', '.join(others)}", fix)
    degrees = pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
    if degrees >= _HOT:
        return warn(subject, f"{found}; {degrees} degrees Celsius", "it throttles when hot: check its cooling")
    return ok(subject, found)


def _process(pid: int) -> str:
    """A process as text; empty for this one, which has opened the GPU itself."""
    if pid == os.getpid():
        return ""
    try:
        return f"process {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:  # it has ended, or belongs to another container
        return f"process {pid}"


def _text(value: bytes | str) -> str:
    # Older versions of pynvml return bytes.
    return value.decode() if isinstance(value, bytes) else value
