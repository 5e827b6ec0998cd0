"""The header of a safetensors file: which tensors it has, of what kinds and shapes. Nothing here needs torch."""

import math
import os
import struct
from typing import Any, BinaryIO

from lockstep.config.values import shown
from lockstep.untrusted import LARGEST_NUMBER, is_counter, parse_json

_LARGEST = 32 << 20
_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}

Entry = tuple[str, tuple[int, ...]]
"""A tensor's kind, as the format spells it, and its shape."""


def read_entries(file: BinaryIO) -> tuple[dict[str, Entry], dict[str, str]]:
    """What a file's header says of its tensors and of itself; ValueError where that is not the size of the file.

    No more than the header is read: what does not fit need not be loaded, nor hashed.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\xff"))
    if length > min(_LARGEST, size - 8):
        raise ValueError("not a safetensors file (its header is cut off or too large)")
    header = parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("not a safetensors file (its header is no object)")
    about = header.pop("__metadata__", {})
    if not isinstance(about, dict) or not all(isinstance(text, str) for text in about.values()):
        raise ValueError("not a safetensors file (what it says of itself is no text)")
    entries = {name: _entry(name, entry) for name, entry in header.items()}
    if 8 + length + sum(map(_bytes_of, entries.values())) != size:
        raise ValueError("not a safetensors file (its size is not that of its tensors)")
    return entries, about


def _entry(name: str, entry: Any) -> Entry:
    match entry:
        case {"dtype": str(kind), "shape": list(shape)} if kind in _SIZES and all(map(is_counter, shape)):
            if _bytes_of((kind, tuple(shape))) <= LARGEST_NUMBER:
                return kind, tuple(shape)
    raise ValueError(f"not a safetensors file (tensor {shown(name)} is of no known kind)")


def _bytes_of(entry: Entry) -> int:
    kind, shape = entry
    return math.prod(shape) * _SIZES[kind]
