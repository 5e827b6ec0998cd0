"""Copies of a network: a slowly following target, and a view without gradients."""

import copy

import torch
from torch import nn

from lockstep.compute import torch_private


def target_of(network: nn.Module) -> nn.Module:
    """A copy with its own memory and no gradients; `follow` moves it."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, share: float) -> None:
    """Move every weight of the target towards the source's by this share of the difference."""
    torch_private.move_towards(list(target.parameters()), list(source.parameters()), share)


def view_of(network: nn.Module) -> nn.Module:
    """The same weights, in the same memory, as a module whose weights get no gradient.

    For a loss that uses a network without training it: gradients reach the network's input, but not its weights.
    """
    # deepcopy takes what the memo holds for an object instead of copying it, here parameters on the same storage.
    same = {id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in network.parameters()}
    return copy.deepcopy(network, memo=dict(same))
