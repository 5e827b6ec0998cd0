"""Process-wide settings that affect a run's results bit for bit: threads, matrix products, kernels."""

import contextlib
import logging
import os
import platform
from collections.abc import Iterator
from typing import Any

import torch

from lockstep.compute import kernels, random
from lockstep.compute.machine import is_arm
from lockstep.config.run_settings import RunSettings
from lockstep.config.values import shown
from lockstep.distributed.world import World
from lockstep.launch.environment import local_size
from lockstep.launch.resources import threads_per_rank

_log = logging.getLogger(__name__)
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_VERSIONS = {"cuda": 3, "cpu": 3 if torch.backends.mkl.is_available() else 2}
"""How Lockstep itself adds and multiplies in exact mode, by device; 1 where it is not named.

To be raised by a change that gives an exact run other bits. GPU 2: lanes are recorded and compiled. GPU 3: LSTMs'
steps are fused. CPU 2: LSTMs and layer normalisations add up so that lanes can be computed together; 3: linear layers
multiply so with MKL, too.
"""


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore all these settings on exit: a program that trains through the API may do other work afterwards."""
    cudnn, deterministic = torch.backends.cudnn, torch.utils.deterministic
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    flags = (torch.backends.mkldnn.enabled, cudnn.allow_tf32, cudnn.benchmark)
    strict, fill = torch.are_deterministic_algorithms_enabled(), deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    workspace, own_kernels = os.environ.get(_CUBLAS), kernels.used()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.backends.mkldnn.enabled, cudnn.allow_tf32, cudnn.benchmark = flags  # type: ignore[assignment]
        torch.use_deterministic_algorithms(strict)
        deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
        kernels.use(own_kernels)
        if workspace is None:
            os.environ.pop(_CUBLAS, None)


def identity(run: RunSettings, world: World) -> dict[str, Any]:
    """What decides the bits of an exact run besides its settings and data: two runs with equal ones end in the same."""
    device = world.device
    found: dict[str, Any] = {"arithmetic": _VERSIONS.get(device.type, 1), "torch": str(torch.__version__)}
    if device.type == "cuda":
        return found | {
            "GPU": torch.cuda.get_device_name(device),
            "compile": run.compile,
            "own kernels": "on" if kernels.used() else "off",
        }
    # Products are computed by other instructions on other processors.
    processor = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return found | {"processor": processor, "threads": torch.get_num_threads()}


def difference(stored: Any, run: RunSettings, world: World) -> str:
    """Why an exact run cannot go on to the bits it would have had, or empty.

    `stored`: what `identity` returned when its checkpoint was made; None if it is older than that.
    """
    before = stored if isinstance(stored, dict) else {"arithmetic": 1}
    now = identity(run, world)
    changed = [name for name in now if name in before and before[name] != now[name]]
    then, here = (", ".join(f"{name} {shown(facts[name])}" for name in changed) for facts in (before, now))
    return f"was made with {then}, and this run has {here}" if changed else ""


def settle_kernels(world: World) -> None:
    """Use our own kernels if all ranks can; they round differently from the eager code. Called by every rank."""
    hindrance = kernels.missing_requirement()
    trouble = random.kernel_trouble(world.device) if world.device.type == "cuda" and hindrance is None else None
    if trouble is not None:
        _log.warning("rank %d: a trial kernel failed (%s); training without them is slower", world.rank, trouble)
    kernels.use(not world.agree(hindrance is not None or trouble is not None))


def fix(run: RunSettings, world: World, *, tf32: bool = True) -> None:
    """Set everything that affects results: threads in every mode; in exact also which kernels may be used.

    tf32: whether fp32 products may use TF32 (10-bit mantissas) where torch supports it; verify turns it off.
    """
    # The order of addition depends on the number of threads, so exact uses one unless the run says otherwise.
    threads = run.threads or (1 if world.sync == "exact" else threads_per_rank(local_size()))
    torch.set_num_threads(threads)
    if is_arm() and world.device.type == "cpu" and run.precision in ("auto", "fp32"):
        # On ARM, oneDNN prepares every matrix product again, which takes longer than a small product itself;
        # convolutions turn it back on for themselves.
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    settle_kernels(world)
    torch.set_float32_matmul_precision("high" if world.sync == "fast" and tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    # Kernels chosen by timing, or that add in order of arrival (atomics), give different bits in every process.
    torch.backends.cudnn.benchmark = not run.deterministic
    torch.use_deterministic_algorithms(run.deterministic)
    # Deterministic mode would fill every empty tensor with NaN: a debugging aid that costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if run.deterministic:
        # cuBLAS is deterministic only with a fixed workspace; torch refuses to run without it.
        os.environ.setdefault(_CUBLAS, ":4096:8")
