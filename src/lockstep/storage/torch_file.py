"""Files that other programs wrote with `torch.save`, read without running anything that is in them.

Such a file is a zip archive of raw tensors and one pickle that says how they hang together. A pickle is a program; here
its instructions are read one by one (by `pickletools`, which only takes them apart) and those that build plain data are
followed. Whatever they want to call becomes a note of what was to be called, and is never looked up.
"""

import math
import os
import pickletools
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from lockstep.untrusted import open_regular

_MARK = object()
_DTYPES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_TENSOR_MAKERS = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor")
_WRAPPERS = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")
_LARGEST_PICKLE = 64 << 20
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")


@dataclass
class Foreign:
    """An object of a class that is not known here: which one, and what it was to be made of."""

    name: str
    """Module and class or function, with a dot between."""
    arguments: tuple[Any, ...] = ()
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Name:
    """Something that the file refers to by its name."""

    full: str


def read_torch_file(path: Path) -> Any:
    """What a file of `torch.save` holds: dicts, lists, tuples, numbers, texts, tensors (on the CPU) and `Foreign`s.

    Tensors are mapped, not read: a large file costs no memory before its numbers are used. ValueError for other files.
    """
    try:
        with open_regular(Path(path), links=True) as file, zipfile.ZipFile(file) as archive:
            return _Reader(file, archive).read()
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ValueError(f"not a file of torch.save ({error})") from error


class _Reader:
    """One archive: where its tensors lie, and the pickle's stack machine."""

    def __init__(self, file: BinaryIO, archive: zipfile.ZipFile) -> None:
        self._file, self._archive = file, archive
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl"]
        if len(pickles) != 1:
            raise ValueError("not a file of torch.save (there is no data.pkl in it)")
        self._pickle, self._folder = pickles[0], pickles[0].removesuffix("data.pkl")
        if f"{self._folder}byteorder" in archive.namelist() and archive.read(f"{self._folder}byteorder") != b"little":
            raise ValueError("its numbers are big-endian, which is not read here")
        self._storages: dict[str, Tensor] = {}

    def read(self) -> Any:
        if self._archive.getinfo(self._pickle).file_size > _LARGEST_PICKLE:
            raise ValueError(f"its data.pkl is larger than {_LARGEST_PICKLE >> 20} MB")
        program = self._archive.read(self._pickle)
        try:
            return _Machine(self._storage).run(program)
        except (IndexError, KeyError, TypeError, AttributeError, struct.error, RuntimeError, OverflowError) as error:
            raise ValueError(f"damaged or of another kind ({type(error).__name__}: {error})") from error

    def _storage(self, reference: Any) -> Tensor:
        """The numbers that a persistent reference means."""
        kind, type_name, key, _, count = reference
        dtype = _DTYPES.get(type_name.full.removeprefix("torch."))
        if kind != "storage" or dtype is None:
            raise ValueError(f"a storage of an unknown kind ({type_name.full})")
        if key not in self._storages:
            self._storages[key] = self._mapped(f"{self._folder}data/{key}").view(dtype)
        if self._storages[key].dtype != dtype or len(self._storages[key]) < count:
            raise ValueError(f"storage {key} is smaller than its tensors")
        return self._storages[key]

    def _mapped(self, name: str) -> Tensor:
        entry = self._archive.getinfo(name)
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{name} is compressed")
        if not entry.file_size:
            return torch.empty(0, dtype=torch.uint8)
        self._file.seek(entry.header_offset)
        *_, name_length, extra_length = _LOCAL_HEADER.unpack(self._file.read(_LOCAL_HEADER.size))
        start = entry.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        if start + entry.file_size > self._file.seek(0, os.SEEK_END):
            raise ValueError(f"{name} reaches beyond the end of the file")
        # Copy on write: torch wants memory that may be written, the file stays as it is.
        return torch.from_numpy(np.memmap(self._file, np.uint8, "c", offset=start, shape=(entry.file_size,)))


class _Machine:
    """The stack machine of a pickle, with the instructions that plain data needs and no others."""

    def __init__(self, storage: Callable[[Any], Tensor]) -> None:
        self._storage = storage
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._instructions: dict[str, Callable[[Any], None]] = {
            "PROTO": lambda _: None,
            "FRAME": lambda _: None,
            "MARK": lambda _: self._push(_MARK),
            "POP": lambda _: self._drop(),
            "NONE": lambda _: self._push(None),
            "NEWTRUE": lambda _: self._push(True),
            "NEWFALSE": lambda _: self._push(False),
            "EMPTY_DICT": lambda _: self._push({}),
            "EMPTY_LIST": lambda _: self._push([]),
            "EMPTY_TUPLE": lambda _: self._push(()),
            "TUPLE": lambda _: self._push(tuple(self._since_mark())),
            "TUPLE1": lambda _: self._join(1),
            "TUPLE2": lambda _: self._join(2),
            "TUPLE3": lambda _: self._join(3),
            "LIST": lambda _: self._push(self._since_mark()),
            "DICT": lambda _: self._push(_pairs(self._since_mark())),
            "APPEND": lambda _: self._extend([self._stack.pop()]),
            "APPENDS": lambda _: self._extend(self._since_mark()),
            "SETITEM": lambda _: self._fill([self._stack.pop(-2), self._stack.pop()]),
            "SETITEMS": lambda _: self._fill(self._since_mark()),
            "MEMOIZE": lambda _: self._remember(len(self._memo)),
            **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), self._remember),
            **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda number: self._push(self._memo[int(number)])),
            "GLOBAL": lambda words: self._push(_Name(words.replace(" ", "."))),
            "STACK_GLOBAL": lambda _: self._push(_Name(f"{self._stack.pop(-2)}.{self._stack.pop()}")),
            "BINPERSID": lambda _: self._push(self._storage(self._stack.pop())),
            "REDUCE": lambda _: self._push(_made(self._stack.pop(-2).full, self._stack.pop())),
            "NEWOBJ": lambda _: self._push(_made(self._stack.pop(-2).full, self._stack.pop())),
            "BUILD": lambda _: self._build(self._stack.pop()),
        }

    def run(self, program: bytes) -> Any:
        """What the program leaves behind; ValueError where it is not one that builds plain data."""
        for opcode, argument, _ in pickletools.genops(program):
            if opcode.name == "STOP":
                return self._stack.pop()
            if opcode.name in self._instructions:
                self._instructions[opcode.name](argument)
            elif not opcode.stack_before and argument is not None:
                self._push(argument)  # A number or a text.
            else:
                raise ValueError(f"its pickle uses {opcode.name}, which plain data does not")
        raise ValueError("its pickle has no end")

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _drop(self) -> None:
        self._stack.pop()

    def _since_mark(self) -> list[Any]:
        start = len(self._stack) - 1 - self._stack[::-1].index(_MARK)
        items = self._stack[start + 1 :]
        del self._stack[start:]
        return items

    def _join(self, size: int) -> None:
        self._stack[-size:] = [tuple(self._stack[-size:])]

    def _extend(self, items: list[Any]) -> None:
        self._stack[-1].extend(items)

    def _fill(self, items: list[Any]) -> None:
        target = self._stack[-1]
        (target.items if isinstance(target, Foreign) else target).update(_pairs(items))

    def _remember(self, number: Any) -> None:
        self._memo[int(number)] = self._stack[-1]

    def _build(self, state: Any) -> None:
        # Attributes of a dict (a state dict's metadata) are nothing that plain data has.
        if isinstance(self._stack[-1], Foreign):
            self._stack[-1].state = state


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _made(name: str, arguments: tuple[Any, ...]) -> Any:
    """What a call stands for: a tensor, a dict, a tuple, or a note of what was to be called."""
    if name in _TENSOR_MAKERS:
        storage, offset, size, stride, *_ = arguments
        if math.prod(size) > len(storage):
            raise ValueError(f"a tensor of {tuple(size)} in {len(storage)} numbers")
        # as_strided itself refuses what would reach beyond the storage.
        return torch.as_strided(storage, size, stride, offset)
    if name in _WRAPPERS:
        return arguments[0]
    if name == "collections.OrderedDict":
        return {}
    if name == "torch.Size":
        return tuple(arguments[0])
    return Foreign(name, arguments)
