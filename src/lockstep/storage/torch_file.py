"""Reads files that other programs wrote with `torch.save`, without running any code in them.

Such a file is a zip archive of raw storages and one pickle that describes the objects. A pickle is a program for a
stack machine. Here `pickletools` disassembles it, and only the opcodes that build plain data are executed. A call to a
class or function becomes a `Foreign` record of its name and arguments: the name is never imported.
"""

import io
import math
import os
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from lockstep.untrusted import open_regular

# The pickle MARK opcode's place on the stack.
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
# Compared as text and never called: how torch.save spells a tensor, and a parameter around a tensor.
_TENSOR_MAKERS = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor")
_WRAPPERS = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")
# Bytes. Values are stored outside the pickle, so that a real one stays far below this.
_LARGEST_PICKLE = 64 << 20
_LARGEST_INSIDE = 1 << 30
_LONGEST_WORD = 16
# A zip entry's local file header; its last two fields are the lengths of the name and of the extra field behind it.
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")


@dataclass
class Foreign:
    """An object of an unknown class: the class's name and what the object would be built from."""

    name: str
    """Module and class or function, joined by a dot."""
    arguments: tuple[Any, ...] = ()
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Name:
    """A class or function that the pickle refers to by name."""

    full: str


def read_torch_file(path: Path, inside: str = "") -> Any:
    """The content of a `torch.save` file: dicts, lists, tuples, numbers, strings, tensors (on the CPU) and `Foreign`s.

    Tensors are memory-mapped: a large file takes no memory until its values are used. ValueError for other files.
    `inside`: the name of the `torch.save` file in an archive of several, as Stable-Baselines3 writes; read as a whole.
    """
    try:
        with open_regular(Path(path), links=True) as file, zipfile.ZipFile(file) as archive:
            if not inside:
                return _Reader(file, archive).read()
            packed = io.BytesIO(_entry(archive, inside, _LARGEST_INSIDE))
            with zipfile.ZipFile(packed) as own:
                return _Reader(packed, own).read()
    # zipfile raises RuntimeError for an encrypted entry.
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"not a torch.save file ({error})") from error


def _entry(archive: zipfile.ZipFile, name: str, at_most: int) -> bytes:
    """An entry of an archive, refused by the size it claims: zipfile never unpacks more than that."""
    if name not in archive.namelist():
        raise ValueError(f"has no {name} in it")
    if archive.getinfo(name).file_size > at_most:
        raise ValueError(f"its {name} is larger than {max(at_most >> 20, 1)} MB")
    return archive.read(name)


class _Reader:
    """One archive: finds its storages and runs its pickle."""

    def __init__(self, file: BinaryIO, archive: zipfile.ZipFile) -> None:
        self._file, self._archive = file, archive
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl"]
        if len(pickles) != 1:
            raise ValueError("not a torch.save file (it has no data.pkl, or several)")
        self._pickle, self._folder = pickles[0], pickles[0].removesuffix("data.pkl")
        # Storages are mapped as they are, in this machine's byte order. Old files do not state theirs.
        order = f"{self._folder}byteorder"
        if order in archive.namelist() and _entry(archive, order, _LONGEST_WORD) != b"little":
            raise ValueError("its numbers are big-endian, which Lockstep does not read")
        self._storages: dict[str, Tensor] = {}

    def read(self) -> Any:
        program = _entry(self._archive, self._pickle, _LARGEST_PICKLE)
        try:
            return _Machine(self._storage).run(program)
        # Opcodes in an order that no pickler writes fail wherever they happen to: an empty stack, a wrong operand.
        except (IndexError, KeyError, TypeError, AttributeError, struct.error, RuntimeError, OverflowError) as error:
            raise ValueError(f"damaged or of another format ({type(error).__name__}: {error})") from error

    def _storage(self, reference: Any) -> Tensor:
        """The storage that a persistent id refers to, as a flat tensor."""
        # The fourth item is the device that it was saved from.
        kind, type_name, key, _, count = reference
        dtype = _DTYPES.get(type_name.full.removeprefix("torch."))
        if kind != "storage" or dtype is None:
            raise ValueError(f"a storage of an unknown type ({type_name.full})")
        # Several tensors may share one storage: it is mapped once.
        if key not in self._storages:
            self._storages[key] = self._mapped(f"{self._folder}data/{key}").view(dtype)
        if self._storages[key].dtype != dtype or len(self._storages[key]) < count:
            raise ValueError(f"storage {key} is smaller than its tensors")
        return self._storages[key]

    def _mapped(self, name: str) -> Tensor:
        """One entry of the archive, memory-mapped as bytes."""
        entry = self._archive.getinfo(name)
        # torch.save never compresses, and compressed bytes could not be mapped.
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{name} is compressed")
        if not entry.file_size:
            # An empty file region cannot be mapped.
            return torch.empty(0, dtype=torch.uint8)
        # zipfile knows where an entry's local header starts, but not its length, which the central directory may not
        # share: torch pads the extra field to align the data.
        self._file.seek(entry.header_offset)
        *_, name_length, extra_length = _LOCAL_HEADER.unpack(self._file.read(_LOCAL_HEADER.size))
        start = entry.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        if start + entry.file_size > self._file.seek(0, os.SEEK_END):
            raise ValueError(f"{name} reaches beyond the end of the file")
        if isinstance(self._file, io.BytesIO):
            held = self._file.getbuffer()[start : start + entry.file_size]
            return torch.frombuffer(bytearray(held), dtype=torch.uint8)
        # Mode "c", copy on write: torch requires writable memory, and the file must not change.
        return torch.from_numpy(np.memmap(self._file, np.uint8, "c", offset=start, shape=(entry.file_size,)))


class _Machine:
    """The pickle stack machine, limited to the opcodes that plain data needs."""

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
            # These three would import a name or call it in a real unpickler. Here the name is kept as text.
            "GLOBAL": lambda name: self._push(_Name(name.replace(" ", "."))),
            "STACK_GLOBAL": lambda _: self._push(_Name(f"{self._stack.pop(-2)}.{self._stack.pop()}")),
            "BINPERSID": lambda _: self._push(self._storage(self._stack.pop())),
            "REDUCE": lambda _: self._push(_made(self._stack.pop(-2).full, self._stack.pop())),
            "NEWOBJ": lambda _: self._push(_made(self._stack.pop(-2).full, self._stack.pop())),
            "BUILD": lambda _: self._build(self._stack.pop()),
        }

    def run(self, program: bytes) -> Any:
        """The object that the program builds; ValueError if it uses opcodes that plain data does not need."""
        for opcode, argument, _ in pickletools.genops(program):
            if opcode.name == "STOP":
                return self._stack.pop()
            if opcode.name in self._instructions:
                self._instructions[opcode.name](argument)
            elif not opcode.stack_before and argument is not None:
                self._push(argument)  # an opcode with an argument that takes nothing from the stack: a number or string
            else:
                raise ValueError(f"its pickle uses {opcode.name}, which plain data does not need")
        raise ValueError("its pickle has no end")

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _drop(self) -> None:
        self._stack.pop()

    def _since_mark(self) -> list[Any]:
        # The last mark: marks nest.
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
        # Attributes of a dict (such as a state dict's `_metadata`) are dropped: they are not part of its data.
        if isinstance(self._stack[-1], Foreign):
            self._stack[-1].state = state


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _made(name: str, arguments: tuple[Any, ...]) -> Any:
    """The result of a call: a tensor, a dict, a tuple, or a record of an unknown call."""
    if name in _TENSOR_MAKERS:
        storage, offset, size, stride, *_ = arguments
        # Strides of 0 would make a huge tensor of a small storage, which whoever copies it would have to allocate.
        if math.prod(size) > len(storage):
            raise ValueError(f"a tensor of shape {tuple(size)} in a storage of {len(storage)} numbers")
        # as_strided itself refuses to reach beyond the storage.
        return torch.as_strided(storage, size, stride, offset)
    if name in _WRAPPERS:
        return arguments[0]
    if name == "collections.OrderedDict":
        return {}
    if name == "torch.Size":
        return tuple(arguments[0])
    return Foreign(name, arguments)
