"""Linear layers in products whose bits for a lane do not depend on how many lanes are computed at once."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.compute.cohorts import cohorts_of
from lockstep.compute.row_invariance import unseen

# With fewer rows MKL chooses a kernel by their number.
_LEAST_ROWS = 16


class LinearLayers:
    """The linear layers of a module, which can be computed in another way than their own for a while."""

    def __init__(self, module: nn.Module, compute: Callable[[nn.Linear, Tensor], Tensor]) -> None:
        # A subclass may compute something else, and so may a layer whose forward pass was replaced by its owner.
        layers = [part for part in module.modules() if type(part) is nn.Linear and "forward" not in vars(part)]
        self._forwards = [(layer, partial(compute, layer)) for layer in layers]

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        """Within this context the layers are computed by the function that was given."""
        try:
            for layer, forward in self._forwards:
                layer.forward = forward  # type: ignore[method-assign]
            yield
        finally:
            for layer, _ in self._forwards:
                layer.__dict__.pop("forward", None)


def by_cohort(cohorts: int, layer: nn.Linear, inputs: Tensor) -> Tensor:
    """The layer for the rows of several cohorts, (E, ...), each multiplied by itself."""
    with unseen():
        return torch.cat([F.linear(part, layer.weight, layer.bias) for part in cohorts_of(inputs, cohorts)])


def lane_linear(layer: nn.Linear, inputs: Tensor) -> Tensor:
    """The layer's forward pass, (..., I) -> (..., O), whose gradients have the same bits under `vmap` over lanes."""
    weight, bias = layer.weight, layer.bias
    if inputs.ndim < 2 or torch.is_autocast_enabled(inputs.device.type):
        return F.linear(inputs, weight, bias)
    rows = inputs.flatten(0, -2) if inputs.ndim > 2 else inputs
    count, outputs = len(rows), layer.out_features
    if count < _LEAST_ROWS:
        rows = F.pad(rows, (0, 0, 0, _LEAST_ROWS - count))
    if outputs == 1:
        # A second output, of zeros: for a matrix and a vector there is a kernel of its own, but not for several lanes.
        weight = F.pad(weight, (0, 0, 0, 1))
    product = torch.mm(rows, weight.t())
    if product.shape != (count, outputs):
        product = product[:count, :outputs]
    # Added afterwards, as `vmap` does: a product that starts from the bias adds up in another order.
    if bias is not None:
        product = product + bias
    return product.unflatten(0, inputs.shape[:-1]) if inputs.ndim > 2 else product
