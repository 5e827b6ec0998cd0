"""A linear layer's bias, dropout, layer norm and activation in one GPU kernel. D: features, N: members of an ensemble.

torch.compile would find a similar kernel, but search for it again in every layer, which takes most of a minute for a
world model.
"""

from typing import Any

import torch
from torch import Tensor

from lockstep.compute.kernels import kernels_usable

EPS = 1e-5
"""Added to the variance, so that equal features are not divided by zero; the default of torch.nn.LayerNorm."""
# Features that a program holds at once, over all its rows.
_TILE = 2048
# The weights' gradients are sums over rows. At most so many programs compute a partial sum each, and these are added
# afterwards: atomic additions would come in another order, and give other bits, in every run.
_PARTS = 128


def fits(features: Tensor, simplex: int = 0) -> bool:
    """Whether `normed` can compute with these features."""
    # The kernel reshapes its tile into distributions, and Triton's tiles are powers of two.
    return kernels_usable(features.device) and simplex & (simplex - 1) == 0


def normed(
    signal: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, kept: Tensor | None = None, simplex: int = 0
) -> Tensor:
    """norm((signal + bias) * kept) * scale + shift, then Mish or softmax: in the shape of signal (..., D), float32.

    Bias, scale and shift are (D,), or (N, D) for a signal (N, ..., D). `kept`: the dropout factors, None without
    dropout. `simplex`: softmax over every so many features; 0: Mish.
    """
    return _forward(signal, bias, scale, shift, kept, simplex)


# Custom operators, so that torch.compile takes the kernels as they are instead of tracing into them.
@torch.library.custom_op("lockstep::normed", mutates_args=())
def _forward(signal: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, kept: Tensor | None, simplex: int) -> Tensor:
    from lockstep.compute.ops import fused_norm_triton

    out = torch.empty(signal.shape, dtype=torch.float32, device=signal.device)
    rows, sizes = _sizes(signal, scale, kept, simplex)
    # A grid of zero programs cannot be launched.
    if out.numel():
        grid = -(-rows // sizes["ROWS"]), scale.numel() // scale.shape[-1]
        fused_norm_triton.forward[grid](*_dense(signal, bias, scale, shift, kept), out, rows, **sizes)
    return out


@torch.library.custom_op("lockstep::normed_backward", mutates_args=())
def _backward(
    gradient: Tensor, signal: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, kept: Tensor | None, simplex: int,
    weights: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of the signal and, with `weights`, of bias, scale and shift, stacked: (3, D) or (3, N, D)."""
    from lockstep.compute.ops import fused_norm_triton

    rows, sizes = _sizes(signal, scale, kept, simplex)
    members, features = scale.numel() // scale.shape[-1], scale.shape[-1]
    # Round up twice: tiles cover all rows, and programs of `each` tiles cover all tiles.
    tiles = -(-rows // sizes["ROWS"])
    each = -(-tiles // _PARTS)
    programs = -(-tiles // each) if each else 0
    to_signal = torch.empty(signal.shape, dtype=signal.dtype, device=signal.device)
    parts = torch.empty(3, members, programs, features, device=signal.device)
    if to_signal.numel():
        fused_norm_triton.backward[(programs, members)](
            gradient.contiguous(), *_dense(signal, bias, scale, shift, kept), to_signal, parts, rows, each, **sizes
        )
    return to_signal, parts.sum(2).view(3, *scale.shape) if weights else parts.new_empty(0)


def _dense(signal: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, kept: Tensor | None) -> list[Tensor]:
    # Without dropout the kernel does not read `kept`, so any tensor can stand in for it.
    return [part.contiguous() for part in (signal, bias, scale, shift, signal if kept is None else kept)]


def _sizes(signal: Tensor, scale: Tensor, kept: Tensor | None, simplex: int) -> tuple[int, dict[str, Any]]:
    """Rows of each member, and the compile-time constants of the kernels."""
    features = scale.shape[-1]
    # The next power of two: Triton's blocks have no other sizes.
    wide = 1 << (features - 1).bit_length()
    rows = max(_TILE // wide, 1)
    constants = {"D": features, "WIDE": wide, "ROWS": rows, "EPS": EPS, "SIMPLEX": simplex, "DROPS": kept is not None}
    return signal.numel() // scale.numel(), constants | {"num_warps": 4 if wide <= _TILE else 8}


# Shapes and dtypes of the results for torch.compile, which traces without values.
@_forward.register_fake
def _(signal: Tensor, *_: Tensor | int | None) -> Tensor:
    return torch.empty(signal.shape, dtype=torch.float32, device=signal.device)


@_backward.register_fake
def _(gradient: Tensor, signal: Tensor, bias: Tensor, scale: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    weights = (3, *scale.shape) if rest[-1] else (0,)
    return torch.empty(signal.shape, dtype=signal.dtype, device=signal.device), torch.empty(
        weights, device=signal.device
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.simplex = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    # Frozen weights (a world model that the policy's loss looks through) need no gradients of their own.
    needs_weights = any(ctx.needs_input_grad[1:4])
    to_signal, to_weights = _backward(gradient, *ctx.saved_tensors, ctx.simplex, needs_weights)
    return to_signal, *(to_weights.unbind(0) if needs_weights else (None, None, None)), None, None


_forward.register_autograd(_gradients, setup_context=_keep)
