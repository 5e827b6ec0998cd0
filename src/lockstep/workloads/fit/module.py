"""Anybody's module as the network of a supervised learner."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.compute.random import derive_seed
from lockstep.errors import UserError, described
from lockstep.workloads.fit.items import split, stacked
from lockstep.workloads.fit.tree import Tree


class UserModule(nn.Module):
    """A module that is called with the inputs of an item: `module(*inputs)`, or `module(**inputs)` for dicts."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.net = module

    def forward(self, inputs: Tree, noise: Tensor | None) -> Any:
        """The module's own output. Its dropout layers find the noise themselves, see compute.dropout."""
        if isinstance(inputs, dict):
            return self.net(**inputs)
        return self.net(*inputs) if isinstance(inputs, tuple) else self.net(inputs)


def make_module(model: nn.Module | Callable[[], nn.Module], source: str, first: Tree, seed: int) -> UserModule:
    """The module of a user, or the one that a function makes, with first weights that follow from the seed.

    `source`: its name in errors. `first`: an item, for modules that choose their sizes by their first input.
    """
    # The user's own generator is not moved, and the weights do not depend on where it stands.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "network"))
        # A copy: the weights that a user gave stay theirs, as they do with several ranks.
        module = copy.deepcopy(model) if isinstance(model, nn.Module) else _made(model, source)
        if not isinstance(module, nn.Module):
            kind = type(module).__name__
            raise UserError(f"{source}: gives a {kind}; allowed: a torch.nn.Module, or a function that returns one")
        made = UserModule(module)
        if any(isinstance(weight, nn.parameter.UninitializedParameter) for weight in module.parameters()):
            with torch.no_grad():
                made(split(stacked([first]))[0], None)
    return made


def _made(make: Any, source: str) -> Any:
    if not callable(make):
        return make
    try:
        return make()
    except Exception as error:
        raise UserError(f"{source}: the model cannot be made ({described(error)})") from error
