"""The layers of TD-MPC2, alone and as an ensemble. N: members of an ensemble, D: features."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.compute.ops import fused_norm
from lockstep.compute.ops.activation import mish


def simplices(features: Tensor, size: int) -> Tensor:
    """SimNorm: a softmax over each group of `size` neighbouring features."""
    return torch.softmax(features.unflatten(-1, (-1, size)), -1).flatten(-2)


class NormedLinear(nn.Linear):
    """A linear layer, a layer norm, and Mish, or SimNorm over groups of `simplex` features."""

    def __init__(self, inputs: int, outputs: int, simplex: int = 0) -> None:
        super().__init__(inputs, outputs)
        self.norm = nn.LayerNorm(outputs, fused_norm.EPS)
        self._simplex = simplex

    def forward(self, features: Tensor) -> Tensor:
        """(..., D) -> (..., D')."""
        if fused_norm.fits(features, self._simplex):
            # The kernel adds the bias itself.
            signal = F.linear(features, self.weight)
            return fused_norm.normed(signal, self.bias, self.norm.weight, self.norm.bias, None, self._simplex)
        features = self.norm(super().forward(features))
        return simplices(features, self._simplex) if self._simplex else mish(features)


def mlp(inputs: int, hidden: Sequence[int], outputs: int, simplex: int = 0) -> nn.Sequential:
    """Normed layers, then a plain linear layer, or one with SimNorm if `simplex` is set."""
    layers: list[nn.Module] = [NormedLinear(width, following) for width, following in pairwise((inputs, *hidden))]
    last = hidden[-1]
    layers.append(NormedLinear(last, outputs, simplex) if simplex else nn.Linear(last, outputs))
    return nn.Sequential(*layers)


class StackedLinear(nn.Module):
    """The weights of N linear layers, with N first; each has a layer norm if `normed`."""

    def __init__(self, members: int, inputs: int, outputs: int, normed: bool) -> None:
        super().__init__()
        # Zeros: the model initialises all weights together, from one seed.
        self.weight = nn.Parameter(torch.zeros(members, outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(members, outputs))
        self.norm = _StackedScale(members, outputs) if normed else None


class _StackedScale(nn.Module):
    """Scale and shift of a layer norm, for N members."""

    def __init__(self, members: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(members, features))
        self.bias = nn.Parameter(torch.zeros(members, features))


Stack = list[tuple[Tensor, Tensor, Tensor | None, Tensor | None]]
"""Each layer's weight, bias, and its norm's scale and shift, for some members."""


class Ensemble(nn.Sequential):
    """N networks of the same shape, computed together with batched matrix products."""

    def __init__(self, members: int, inputs: int, hidden: Sequence[int], outputs: int) -> None:
        widths = (inputs, *hidden, outputs)
        layers = [StackedLinear(members, *pair, normed=True) for pair in pairwise(widths[:-1])]
        super().__init__(*layers, StackedLinear(members, hidden[-1], outputs, normed=False))
        self.members = members

    def stack(self, members: Tensor | None = None) -> Stack:
        """All weights, or those of the members whose numbers are given (M,), which may repeat."""

        def chosen(weight: Tensor) -> Tensor:
            return weight if members is None else weight[members]

        stack: Stack = []
        for layer in cast(Iterator[StackedLinear], iter(self)):
            norm = layer.norm
            scale, shift = (None, None) if norm is None else (chosen(norm.weight), chosen(norm.bias))
            stack.append((chosen(layer.weight), chosen(layer.bias), scale, shift))
        return stack

    def forward(self, features: Tensor, kept: Tensor | None = None) -> Tensor:
        """Outputs of all members, (B, D) -> (N, B, D'); `kept`: see `run`."""
        return run(self.stack(), features, kept)


def run(stack: Stack, features: Tensor, kept: Tensor | None = None) -> Tensor:
    """Outputs of some members, (B, D) -> (N, B, D').

    `kept` (N, B, hidden): dropout factors for the first layer's outputs, drawn by the caller.
    """
    # Every member sees the same input; expanding copies nothing.
    signal = features.expand(len(stack[0][0]), -1, -1)
    for weight, bias, scale, shift in stack:
        # The kernel adds the bias, drops, normalises and activates in one pass. `kept` is then None: only the first
        # layer has dropout.
        if scale is not None and shift is not None and fused_norm.fits(signal):
            signal, kept = fused_norm.normed(torch.bmm(signal, weight.transpose(1, 2)), bias, scale, shift, kept), None
            continue
        signal = torch.baddbmm(bias.unsqueeze(1), signal, weight.transpose(1, 2))
        if kept is not None:
            signal, kept = signal * kept, None
        if scale is not None and shift is not None:
            normalised = F.layer_norm(signal, signal.shape[-1:], eps=fused_norm.EPS)
            signal = mish(normalised * scale.unsqueeze(1) + shift.unsqueeze(1))
    return signal
