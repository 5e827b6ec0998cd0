"""Trained models as files for programs that do not have Lockstep: ONNX graphs, and programs of plain torch."""

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.errors import LockstepError, UserError


@dataclass(frozen=True)
class Program:
    """A trained model as one function of tensors, each with the batch as its first axis."""

    module: nn.Module
    """Called with the inputs in their order; returns a tuple of the outputs."""
    inputs: Mapping[str, Tensor]
    """An example of each input, by name; the batch is 2."""
    outputs: tuple[str, ...]
    note: str = ""
    """What a user has to know about it; empty = nothing."""


class _Called(nn.Module):
    """The module with all inputs as one list of arguments, so that the axes of each can be described alike."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Any:
        return self.module(*inputs)


def write_onnx(program: Program, path: Path) -> None:
    """Write an ONNX graph with the program's names of inputs and outputs. Needs onnx and onnxscript."""
    import onnxscript  # noqa: F401 - fail early: torch imports it late, with another error message

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    torch.onnx.export(
        _ready(program),
        tuple(program.inputs.values()),
        path,
        input_names=list(program.inputs),
        output_names=list(program.outputs),
        dynamic_shapes=_any_batch(program),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def write_torch(program: Program, path: Path) -> None:
    """Write a program that needs torch alone: `torch.export.load(FILE).module()(*inputs)`."""
    exported = torch.export.export(
        _ready(program), tuple(program.inputs.values()), dynamic_shapes=_any_batch(program), strict=False
    )
    # Through a file object: torch.export.save insists on a suffix, and we write to a temporary name first.
    with path.open("wb") as file:
        torch.export.save(exported, file)


_WRITERS: dict[str, Callable[[Program, Path], None]] = {"onnx": write_onnx, "torch": write_torch}
FORMATS = tuple(_WRITERS)
"""What `write` can write."""


def write(form: str, program: Program, path: Path) -> None:
    """Write a program in one of FORMATS; UserError if its module cannot be traced."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _WRITERS[form](program, path)
    except (LockstepError, ImportError, OSError):
        raise
    except Exception as error:
        # The innermost error says what could not be followed, in its first line; those around it give advice.
        inner: BaseException = error
        while inner.__cause__ is not None:
            inner = inner.__cause__
        reason = f"{type(inner).__name__}: {next(iter(str(inner).strip().splitlines()), '')}"[:300]
        raise UserError(
            f"--format {form}: torch cannot trace this network ({reason}); use --format safetensors, or a network "
            "whose forward does the same for every input"
        ) from error


def _ready(program: Program) -> nn.Module:
    return _Called(program.module).eval().requires_grad_(False).cpu()


def _any_batch(program: Program) -> tuple[tuple[dict[int, Any], ...]]:
    """The first axis of every input may have any size, the same for all."""
    batch = torch.export.Dim("batch", min=1)
    return (tuple({0: batch} for _ in program.inputs),)
