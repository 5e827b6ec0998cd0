"""The Triton kernels as differentiable operators, equal to the eager code in `operators`. B: samples, L: balls."""

from typing import Any

import torch
from torch import Tensor

_WARPS = 4
"""Warps of a program; kernels over wide tiles use twice as many."""
_LEAST = 16
"""Smallest side of a matrix product (tl.dot) in a kernel."""


def gap_attention(query: Tensor, key: Tensor, value: Tensor, edge: Tensor, allowed: Tensor, *numbers: Tensor) -> Tensor:
    """GapAttention: (B, L, R x C) each, edge (R, H, D), allowed (B, R, L, L), numbers as in Edges -> (B, L, C)."""
    return _GapAttention.apply(query, key, value, edge, allowed, *numbers)


def node_attention(source: Tensor, target: Tensor, attention: Tensor, mask: Tensor) -> Tensor:
    """BallAttention: source (B, L, T x C), target (B, T, C), attention (T, H, D), mask (B, T or 1, L) -> (B, T, C)."""
    return _NodeAttention.apply(source, target, attention, mask)


def matchup_attention(
    source: Tensor, target: Tensor, attention: Tensor, order: Tensor, rank: Tensor, most: int
) -> Tensor:
    """MatchupAttention: source and target (B, L, C), attention (H, D), order and rank (B, L) -> (B, L, C).

    `most`: how many earlier balls of its matchup a ball reads.
    """
    return _MatchupAttention.apply(source, target, attention, order, rank, most)


def _wide(length: int) -> int:
    """The next power of two: the sizes that Triton can tile."""
    return max(_LEAST, 1 << (length - 1).bit_length())


def _precision(tensor: Tensor) -> str:
    """Precision of float32 products (TF32 or IEEE), as PyTorch is set in this run."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" or not tensor.is_cuda else "tf32"


class _GapAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        from lockstep.workloads.cricket.network import fused_triton

        query, key, value = (part.contiguous() for part in inputs[:3])
        edge, allowed, number, own = inputs[3:]
        relations, heads, depth = edge.shape
        count, length, _ = query.shape
        wide = _wide(length)
        # A tile is rows x wide: fewer rows for long histories keep it small.
        rows, warps = (_LEAST if wide > 128 else 2 * _LEAST), (_WARPS if wide < 128 else 2 * _WARPS)
        ctx.sizes = {
            "L": length, "WIDE": wide, "R": relations, "H": heads, "D": depth, "DW": _wide(depth),
            "ROWS": rows, "PRECISION": _precision(query), "scale": depth**-0.5, "num_warps": warps,
        }  # fmt: skip
        tables = allowed.contiguous().view(torch.uint8), number.contiguous(), own.contiguous()
        ctx.save_for_backward(query, key, value, edge, *tables)
        out = torch.empty(count, length, heads * depth, dtype=query.dtype, device=query.device)
        grid = count * heads, -(-length // rows)
        fused_triton.gap_forward[grid](query, key, value, edge, *tables, out, **ctx.sizes)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        from lockstep.workloads.cricket.network import fused_triton

        query, key, value, edge, *tables = ctx.saved_tensors
        found = [torch.empty_like(part) for part in (query, key, value)]
        # One part per sample, added below by PyTorch in a fixed order; atomics in the kernel would have none.
        to_edge = torch.empty(len(query), *edge.shape, device=edge.device)
        grid = len(query) * edge.shape[1], len(edge)
        gradient = gradient.to(query.dtype).contiguous()
        fused_triton.gap_backward[grid](query, key, value, edge, *tables, gradient, *found, to_edge, **ctx.sizes)
        return *found, to_edge.sum(0), None, None, None


class _NodeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor, attention: Tensor, mask: Tensor) -> Tensor:
        from lockstep.workloads.cricket.network import fused_triton

        targets, heads, depth = attention.shape
        count, length, _ = source.shape
        ctx.sizes = {
            "L": length, "WIDE": _wide(length), "T": targets, "MASKS": mask.shape[1], "H": heads, "D": depth,
            "DW": _wide(depth), "num_warps": _WARPS,
        }  # fmt: skip
        inputs = source.contiguous(), target.contiguous(), attention, mask.contiguous().view(torch.uint8)
        ctx.save_for_backward(*inputs)
        out = torch.empty_like(inputs[1])
        fused_triton.node_forward[(count, targets * heads)](*inputs, out, **ctx.sizes)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        from lockstep.workloads.cricket.network import fused_triton

        source, target, attention, mask = ctx.saved_tensors
        targets, heads, _ = attention.shape
        found = torch.empty_like(source), torch.empty_like(target)
        to_attention = torch.empty(len(source), *attention.shape, device=source.device)
        fused_triton.node_backward[(len(source), targets * heads)](
            source, target, attention, mask, gradient.contiguous(), *found, to_attention, **ctx.sizes
        )
        return *found, to_attention.sum(0), None


class _MatchupAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        from lockstep.workloads.cricket.network import fused_triton

        source, target, attention, order, rank, most = inputs
        (heads, depth), (count, length, _) = attention.shape, source.shape
        ctx.sizes = {
            "L": length, "H": heads, "D": depth, "DW": _wide(depth), "P": most, "ROWS": 2 * _LEAST, "num_warps": _WARPS,
        }  # fmt: skip
        ctx.grid = count * heads, -(-length // ctx.sizes["ROWS"])
        given = source.contiguous(), target.contiguous(), attention, order.contiguous(), rank.contiguous()
        out, level = torch.empty_like(given[0]), torch.empty(count, length, heads, device=source.device)
        fused_triton.matchup_forward[ctx.grid](*given, out, level, **ctx.sizes)
        ctx.save_for_backward(*given, out, level)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        from lockstep.workloads.cricket.network import fused_triton

        source, target, attention, *rest = ctx.saved_tensors
        found = torch.empty_like(source), torch.empty_like(target)
        heads, depth = attention.shape
        programs, tiles = ctx.grid
        to_attention = torch.empty(programs // heads, heads, tiles, depth, device=source.device)
        fused_triton.matchup_backward[ctx.grid](
            source, target, attention, *rest, gradient.contiguous(), *found, to_attention, **ctx.sizes
        )
        return *found, to_attention.sum((0, 2)), None, None, None
