"""Undocumented functions of torch, in one place: why each is used, and the fallback on a torch without it.

`missing` lists what the installed torch lacks; a test checks on every supported version that the list is empty.
"""

import contextlib
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.optim import Optimizer

# Sees every operation that is computed. Without a fallback: all supported versions have it.
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

USED = (
    "torch._foreach_norm",
    "torch._foreach_add_",
    "torch._foreach_copy_",
    "torch._foreach_mul_",
    "torch._foreach_div_",
    "torch._foreach_lerp_",
    "torch._fused_adamw_",
    "torch.utils._python_dispatch.TorchDispatchMode",
    "torch._inductor.async_compile.maybe_warm_pool",
    "torch._C._functorch.maybe_current_level",
    "torch._C._FunctionBase",
)
"""The undocumented names that are used below."""


def missing() -> list[str]:
    """The names of USED that the installed torch does not have."""
    return [name for name in USED if not _exists(name)]


def _exists(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ImportError:
        return False


# One kernel for a whole list of tensors instead of one per tensor. torch's own optimizers and clip_grad_norm_ are built
# on these. The fallbacks work tensor by tensor and give the same bits.


def norms(tensors: list[Tensor]) -> list[Tensor]:
    """The Euclidean norm of each tensor."""
    if hasattr(torch, "_foreach_norm"):
        return list(torch._foreach_norm(tensors))
    return [torch.linalg.vector_norm(tensor) for tensor in tensors]


def store(tensors: Sequence[Tensor], parts: Sequence[Tensor | None]) -> None:
    """Copy a part to each tensor in place; None is zero."""
    given = [(tensor, part) for tensor, part in zip(tensors, parts, strict=True) if part is not None]
    for tensor, part in zip(tensors, parts, strict=True):
        if part is None:
            tensor.zero_()
    if hasattr(torch, "_foreach_copy_"):
        torch._foreach_copy_([tensor for tensor, _ in given], [part for _, part in given])
        return
    for tensor, part in given:
        tensor.copy_(part)


def accumulate(tensors: Sequence[Tensor], parts: Sequence[Tensor | None]) -> None:
    """Add a part to each tensor in place; None adds nothing."""
    pairs = [(tensor, part) for tensor, part in zip(tensors, parts, strict=True) if part is not None]
    if hasattr(torch, "_foreach_add_"):
        torch._foreach_add_([tensor for tensor, _ in pairs], [part for _, part in pairs])
        return
    for tensor, part in pairs:
        tensor.add_(part)


def multiply(tensors: list[Tensor], factor: Tensor) -> None:
    """Multiply each tensor in place by a scalar that stays on the device."""
    if hasattr(torch, "_foreach_mul_"):
        torch._foreach_mul_(tensors, factor)
        return
    for tensor in tensors:
        tensor.mul_(factor)


def divide(tensors: list[Tensor], divisor: Tensor) -> None:
    """Divide each tensor in place by a scalar that stays on the device."""
    if hasattr(torch, "_foreach_div_"):
        torch._foreach_div_(tensors, divisor)
        return
    for tensor in tensors:
        tensor.div_(divisor)


def move_towards(targets: list[Tensor], sources: list[Tensor], share: float) -> None:
    """Move each target this share of the way towards its source, in place."""
    if hasattr(torch, "_foreach_lerp_"):
        torch._foreach_lerp_(targets, sources, share)
        return
    for target, source in zip(targets, sources, strict=True):
        target.lerp_(source, share)


def skip_next_step(optimizer: Optimizer, where: Tensor) -> None:
    """Make a fused optimizer skip its next step if the flag (a float on the device) is 1, without reading it.

    torch's GradScaler sets the same attribute to skip a step on the device. A fused optimizer that ignored it would
    take a step that must be skipped, so a test checks its effect.
    """
    optimizer.found_inf = where  # type: ignore[attr-defined]


def has_adamw_kernel() -> bool:
    """Whether `adamw` can be called; without it torch's optimizer does the same with more bookkeeping."""
    return hasattr(torch, "_fused_adamw_")


@torch.no_grad()
def adamw(
    parameters: list[Tensor],
    gradients: list[Tensor],
    averages: list[Tensor],
    squares: list[Tensor],
    steps: list[Tensor],
    *,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    eps: float,
) -> None:
    """The kernel of torch's fused AdamW, in place. `steps`: how many there have been, with this one."""
    torch._fused_adamw_(
        parameters,
        gradients,
        averages,
        squares,
        [],
        steps,
        amsgrad=False,
        lr=lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=weight_decay,
        eps=eps,
        maximize=False,
    )


@functools.cache
def start_compilers() -> None:
    """Start torch's compile workers; until they are ready, kernels are compiled one after another.

    The first compilation would start them too, but they take seconds, which overlap here with building environments.
    """
    with contextlib.suppress(ImportError):
        from torch._inductor.async_compile import maybe_warm_pool

        maybe_warm_pool()


def transforming() -> bool:
    """Whether `vmap` or `grad` is computing. Without the function: no, so functions of our own cannot be part of it."""
    return _level() is not None


_level: Callable[[], int | None] = getattr(getattr(torch._C, "_functorch", None), "maybe_current_level", lambda: None)


def apply(function: type[Function], *arguments: Any) -> Any:
    """`Function.apply`, which for a function with `setup_context` takes longer than a small operation.

    It looks up the arguments' names and defaults each time, so that they can be given by name.
    """
    if torch.compiler.is_compiling() or transforming():
        return function.apply(*arguments)
    return super(Function, function).apply(*arguments)  # type: ignore[misc]
