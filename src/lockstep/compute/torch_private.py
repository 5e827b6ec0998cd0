"""What torch offers without promising it, in one place: why each is used, and what is done on a torch without it.

`missing` names what the installed torch lacks; a test holds it to nothing on every supported version.
"""

import contextlib
import functools
import importlib

import torch
from torch import Tensor
from torch.optim import Optimizer

USED = (
    "torch._foreach_norm",
    "torch._foreach_mul_",
    "torch._foreach_div_",
    "torch._foreach_lerp_",
    "torch._inductor.async_compile.maybe_warm_pool",
)
"""Undocumented names that are used below."""


def missing() -> list[str]:
    """The names of USED that the installed torch does not have."""
    return [name for name in USED if not _exists(name)]


def _exists(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ImportError:
        return False


# One kernel for a whole list of tensors instead of one for each. torch's own optimisers and clip_grad_norm_ stand on
# these; without them the same is done tensor by tensor, with the same bits.


def norms(tensors: list[Tensor]) -> list[Tensor]:
    """The Euclidean norm of each tensor."""
    if hasattr(torch, "_foreach_norm"):
        return list(torch._foreach_norm(tensors))
    return [torch.linalg.vector_norm(tensor) for tensor in tensors]


def multiply(tensors: list[Tensor], factor: Tensor) -> None:
    """Multiply each tensor by a number that stays on the device, in place."""
    if hasattr(torch, "_foreach_mul_"):
        torch._foreach_mul_(tensors, factor)
        return
    for tensor in tensors:
        tensor.mul_(factor)


def divide(tensors: list[Tensor], divisor: Tensor) -> None:
    """Divide each tensor by a number that stays on the device, in place."""
    if hasattr(torch, "_foreach_div_"):
        torch._foreach_div_(tensors, divisor)
        return
    for tensor in tensors:
        tensor.div_(divisor)


def move_towards(targets: list[Tensor], sources: list[Tensor], share: float) -> None:
    """Move each target this share of the way to its source, in place."""
    if hasattr(torch, "_foreach_lerp_"):
        torch._foreach_lerp_(targets, sources, share)
        return
    for target, source in zip(targets, sources, strict=True):
        target.lerp_(source, share)


def leave_out_next_step(optimizer: Optimizer, where: Tensor) -> None:
    """Have a fused optimiser leave everything as it is in its next step where the flag is 1, without asking for it.

    torch's GradScaler uses this attribute to skip a step on the device; a fused optimiser that does not read it would
    take a step that should be left out, so a test looks at what it does.
    """
    optimizer.found_inf = where  # type: ignore[attr-defined]


@functools.cache
def start_compilers() -> None:
    """Start the processes that compile kernels: until they are ready, kernels are compiled one after the other.

    Compiling starts them too, but they need seconds, which pass here while environments are made.
    """
    with contextlib.suppress(ImportError):
        from torch._inductor.async_compile import maybe_warm_pool

        maybe_warm_pool()
