"""A trained module as a function of tensors, for programs that do not have Lockstep."""

from typing import Any

import torch
from torch import Tensor, nn

from lockstep.errors import UserError
from lockstep.run.learner import Learner
from lockstep.storage.program_file import Program
from lockstep.workloads.fit.items import split, stacked
from lockstep.workloads.fit.outline import stand_in
from lockstep.workloads.fit.tree import leaves


class _Predicts(nn.Module):
    """Inputs one after another -> the tensors of the prediction one after another."""

    def __init__(self, model: nn.Module, keys: tuple[str, ...]) -> None:
        """`keys`: names of the inputs if the module takes them by name."""
        super().__init__()
        self.model, self._keys = model, keys

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        called: Any = dict(zip(self._keys, inputs, strict=True)) if self._keys else inputs
        return tuple(tensor for _, tensor in leaves(self.model(called)[0]))


def module_program(learner: Learner) -> Program:
    """The module of a trained learner, called as with the items it was trained on."""
    batch = split(stacked([stand_in(learner.sample)] * 2))[0]
    keys = tuple(batch) if isinstance(batch, dict) else ()
    tensors = list(batch.values()) if isinstance(batch, dict) else list(batch)
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise UserError("export: an input of this module is itself a tuple or dict; use --format safetensors")
    device = next(learner.model.parameters()).device
    module = _Predicts(learner.model, keys).eval()
    with torch.no_grad():
        outputs = len(module(*(tensor.to(device) for tensor in tensors)))
    return Program(
        module,
        dict(zip(keys or _names("input", len(tensors)), tensors, strict=True)),
        _names("output", outputs),
    )


def _names(word: str, count: int) -> tuple[str, ...]:
    return (word,) if count == 1 else tuple(f"{word}_{number}" for number in range(count))
