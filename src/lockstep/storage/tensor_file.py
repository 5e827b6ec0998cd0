"""Named tensors to bytes and back: safetensors, because reading a file must never run code."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from lockstep.errors import UserError
from lockstep.storage.header import read_entries

# The prefix that DistributedDataParallel puts before every parameter's name.
_WRAPPED = "module."
_KINDS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
Named = TypeVar("Named")


@dataclass(frozen=True)
class TensorSpec:
    """A tensor's shape and dtype, without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.shape} {str(self.dtype).removeprefix('torch.')}"


def encode(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as safetensors bytes; equal tensors give equal bytes, whatever their device, strides and storage."""
    seen: set[int] = set()
    packed = {}
    for name, tensor in sorted(tensors.items()):
        packed[name] = tensor.detach().cpu().contiguous()
        storage = packed[name].untyped_storage().data_ptr()
        # The format has no aliases, and safetensors refuses shared storage: tied weights are written once per name.
        if storage in seen:
            packed[name] = packed[name].clone()
        seen.add(storage)
    return safetensors.torch.save(packed)


def decode(data: bytes) -> dict[str, Tensor]:
    """The tensors of safetensors bytes, on the CPU, sorted by name; ValueError for any other bytes."""
    try:
        return dict(sorted(safetensors.torch.load(data).items()))
    # What safetensors raises depends on where the damage is: its parser, its dtype table or torch itself.
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError, AssertionError) as error:
        raise ValueError(f"not a safetensors file ({str(error) or type(error).__name__})") from error


def specs_of(tensors: Mapping[str, Tensor]) -> dict[str, TensorSpec]:
    """The shape and dtype of each tensor, by name."""
    return {name: TensorSpec(tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


def read_header(file: BinaryIO) -> tuple[dict[str, TensorSpec], dict[str, str]]:
    """The shapes and dtypes in a safetensors file, and its metadata; ValueError if the header is not valid."""
    entries, about = read_entries(file)
    return {name: TensorSpec(shape, _KINDS[kind]) for name, (kind, shape) in entries.items()}, about


def plain_names(tensors: Mapping[str, Named]) -> dict[str, Named]:
    """The same tensors without the `module.` that a data-parallel wrapper puts before each name."""
    plain = {name.removeprefix(_WRAPPED): tensor for name, tensor in tensors.items()}
    # Two names that became one: loading either tensor would be a guess.
    if len(plain) != len(tensors):
        twice = next(name for name in tensors if name.startswith(_WRAPPED) and name.removeprefix(_WRAPPED) in tensors)
        raise UserError(f"tensor {twice!r} exists twice, with and without {_WRAPPED!r}: remove one of the two")
    return plain


def weights_hash(tensors: Mapping[str, Tensor]) -> str:
    """sha256 over (name, dtype, shape, bytes), sorted by name: equal if and only if every bit is."""
    # Not the hash of the encoded file: that one also depends on how safetensors writes its header.
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode() + b"\n")
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        if flat.numel():
            # As bytes, because numpy has no bfloat16.
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def stored_size(tensors: Mapping[str, Tensor]) -> int:
    """Bytes that these tensors will take on disk, rounded up."""
    header_entry = 256  # dtype, shape and offsets as JSON: more than any tensor needs
    return sum(tensor.numel() * tensor.element_size() + len(name) + header_entry for name, tensor in tensors.items())
