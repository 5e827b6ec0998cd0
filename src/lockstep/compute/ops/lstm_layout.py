"""The weights of our LSTM in PyTorch's layout, for files that other programs read.

Ours stacks the gates as output, input, forget, candidate and has one bias. `nn.LSTMCell` stacks them as input, forget,
candidate, output, adds a second bias, and has other names for all of them.
"""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from lockstep.compute.ops.lstm import LSTM

ABOUT = "weight_ih, weight_hh, bias_ih and bias_hh as in torch.nn.LSTMCell: gates i, f, g, o"
"""The note in a file's header. Files without it have the layout, and the names, of our own LSTM."""
_NAMES = {"inputs.weight": "weight_ih", "recurrent": "weight_hh", "inputs.bias": "bias_ih"}
"""PyTorch's names by ours."""
_SECOND_BIAS = "bias_hh"
T = TypeVar("T")


def has_lstm(model: nn.Module) -> bool:
    """Whether any part of a model is our LSTM."""
    return bool(_places(model))


def to_pytorch(weights: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """A model's weights with every LSTM as `nn.LSTMCell` has it; the second bias is zero."""
    written = dict(weights)
    for place in _places(model):
        for ours, theirs in _NAMES.items():
            output, *others = written.pop(place + ours).chunk(4)
            written[place + theirs] = torch.cat((*others, output))
        written[place + _SECOND_BIAS] = torch.zeros_like(written[place + "bias_ih"])
    return written


def own_names(entries: Mapping[str, T], model: nn.Module) -> dict[str, T]:
    """What a file says about each weight, by our names and without the second biases."""
    found = dict(entries)
    for place in _places(model):
        if place + "weight_hh" in found:
            # A damaged file may lack some of them; the caller finds out which.
            renamed = {place + theirs: place + ours for ours, theirs in _NAMES.items()}
            found = {renamed.get(name, name): entry for name, entry in found.items()}
            found.pop(place + _SECOND_BIAS, None)
    return found


def from_pytorch(weights: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """The weights in our layout; those that are in it already are left as they are."""
    read = own_names(weights, model)
    for place in _places(model):
        if place + "weight_hh" in weights and all(place + ours in read for ours in _NAMES):
            # The two biases only ever occur as their sum.
            read[place + "inputs.bias"] = read[place + "inputs.bias"] + weights.get(place + _SECOND_BIAS, 0.0)
            for ours in _NAMES:
                *others, output = read[place + ours].chunk(4)
                read[place + ours] = torch.cat((output, *others))
    return read


def _places(model: nn.Module) -> list[str]:
    """The prefix of every LSTM's weights in a model's state."""
    return [f"{name}." for name, module in model.named_modules() if isinstance(module, LSTM)]
