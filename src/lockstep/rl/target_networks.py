"""Copies of a network: a target that follows it slowly, a view that takes no gradient, and what it was in the past."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lockstep.compute import torch_private


def target_of(network: nn.Module) -> nn.Module:
    """A copy with memory of its own that no gradient reaches; `follow` moves it."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, share: float) -> None:
    """Move every weight of the target this share of the way to the source's."""
    torch_private.move_towards(list(target.parameters()), list(source.parameters()), share)


def view_of(network: nn.Module) -> nn.Module:
    """The same weights, in the same memory, as a module that no gradient reaches.

    For a loss that only looks through a network: gradients pass on to the network's input, and its own stay untouched.
    """
    same = {id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in network.parameters()}
    return copy.deepcopy(network, memo=dict(same))


class PastSelves:
    """What a network was at some moments of the past, the oldest replaced in turn; in memory that stays where it is."""

    def __init__(self, network: nn.Module, count: int) -> None:
        self.networks = [target_of(network) for _ in range(count)]

    def remember(self, network: nn.Module, number: int) -> None:
        """Keep the network as it is now: the moment of this number takes the place of the one `count` before it."""
        follow(self.networks[number % len(self.networks)], network, 1.0)

    def begin_anew(self, network: nn.Module) -> None:
        """Have no past but the network as it is now."""
        for number in range(len(self.networks)):
            self.remember(network, number)

    def state(self) -> dict[str, Tensor]:
        """All their weights by name."""
        return {
            f"past.{number}.{name}": weight
            for number, network in enumerate(self.networks)
            for name, weight in network.state_dict().items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up a state from `state`."""
        for number, network in enumerate(self.networks):
            start = f"past.{number}."
            network.load_state_dict({k.removeprefix(start): v for k, v in state.items() if k.startswith(start)})
