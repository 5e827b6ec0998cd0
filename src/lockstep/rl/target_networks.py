"""Copies of a network: a slowly following target, a view without gradients, and earlier versions."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

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


class PastSelves:
    """Earlier versions of a network, the oldest replaced in turn; updated in place, as recorded graphs need."""

    def __init__(self, network: nn.Module, count: int) -> None:
        self.networks = [target_of(network) for _ in range(count)]

    def remember(self, network: nn.Module, number: int) -> None:
        """Store the network's current weights as version `number`, which replaces version `number - count`."""
        follow(self.networks[number % len(self.networks)], network, 1.0)

    def begin_anew(self, network: nn.Module) -> None:
        """Replace all versions by the network's current weights."""
        for number in range(len(self.networks)):
            self.remember(network, number)

    def state(self) -> dict[str, Tensor]:
        """All weights by name."""
        return {
            f"past.{number}.{name}": weight
            for number, network in enumerate(self.networks)
            for name, weight in network.state_dict().items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        for number, network in enumerate(self.networks):
            start = f"past.{number}."
            network.load_state_dict({k.removeprefix(start): v for k, v in state.items() if k.startswith(start)})
