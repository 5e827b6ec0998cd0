"""The header of a safetensors file: its tensors' names, dtypes and shapes. Nothing here needs torch.

The format: the header's length in 8 bytes (little-endian), the header as JSON, then the tensors' raw bytes.
"""

import math
import os
import struct
from typing import Any, BinaryIO

from lockstep.config.values import shown
from lockstep.untrusted import LARGEST_NUMBER, is_counter, parse_json

# A header has about 100 bytes per tensor. A larger one is damage or an attack, and it is parsed before any other check.
_LARGEST = 32 << 20
# Bytes per element.
_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}

Entry = tuple[str, tuple[int, ...]]
"""A tensor's dtype, as the format spells it, and its shape."""


def read_entries(file: BinaryIO) -> tuple[dict[str, Entry], dict[str, str]]:
    """A file's tensors and its metadata, from its header; ValueError if they do not add up to the size of the file.

    Only the header is read, so that a file of the wrong shapes is refused before it is loaded or hashed.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    # A file of fewer than 8 bytes is padded to a length that no header has, and so refused below.
    (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\xff"))
    if length > min(_LARGEST, size - 8):
        raise ValueError("not a safetensors file (its header is cut off or too large)")
    header = parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("not a safetensors file (its header is not a JSON object)")
    about = header.pop("__metadata__", {})
    if not isinstance(about, dict) or not all(isinstance(text, str) for text in about.values()):
        raise ValueError("not a safetensors file (its metadata is not text)")
    entries = {name: _entry(name, entry) for name, entry in header.items()}
    # Offsets are not looked at here: safetensors itself checks them when the file is decoded.
    if 8 + length + sum(map(_bytes_of, entries.values())) != size:
        raise ValueError("not a safetensors file (its size does not match its tensors)")
    return entries, about


def _entry(name: str, entry: Any) -> Entry:
    match entry:
        case {"dtype": str(kind), "shape": list(shape)} if kind in _SIZES and all(map(is_counter, shape)):
            # A product of many large dimensions would overflow the integers of whoever allocates it.
            if _bytes_of((kind, tuple(shape))) <= LARGEST_NUMBER:
                return kind, tuple(shape)
    raise ValueError(f"not a safetensors file (tensor {shown(name)} has an unknown dtype or an invalid shape)")


def _bytes_of(entry: Entry) -> int:
    kind, shape = entry
    return math.prod(shape) * _SIZES[kind]
