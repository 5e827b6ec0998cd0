"""Policy networks for other programs: an ONNX graph, or a program that plain torch loads. B: observations."""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from lockstep.errors import UserError

OUTPUTS = ("logits", "value")
"""What an exported policy returns: (B, A) outputs of the policy, and (B,) values."""


def write_onnx(network: nn.Module, observation: Tensor, path: Path) -> None:
    """Write a graph from `observation` (B, ...) to `logits` and `value`. Needs onnx and onnxscript."""
    import onnxscript  # noqa: F401 - fail early: torch imports it late, with another error message

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _ready(network),
            (observation,),
            path,
            input_names=["observation"],
            output_names=list(OUTPUTS),
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def write_torch(network: nn.Module, observation: Tensor, path: Path) -> None:
    """Write a program that needs torch alone: `torch.export.load(FILE).module()(observation)`."""
    batch = torch.export.Dim("batch", min=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(_ready(network), (observation,), dynamic_shapes=({0: batch},))
        # Through a file object: torch.export.save insists on a suffix, and we write to a temporary name first.
        with path.open("wb") as file:
            torch.export.save(program, file)


WRITERS: dict[str, Callable[[nn.Module, Tensor, Path], None]] = {"onnx": write_onnx, "torch": write_torch}
"""By format."""


def _ready(network: nn.Module) -> nn.Module:
    if hasattr(network, "first_memory"):
        raise UserError("export: this network has a memory, which a graph of one step cannot keep; use safetensors")
    return network.eval().requires_grad_(False)
