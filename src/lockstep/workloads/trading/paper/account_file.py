"""The file of a paper account: JSON, replaced atomically, and checked as a stranger's when it is read."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.config.values import shown
from lockstep.config.yaml_text import shown_path
from lockstep.errors import UserError
from lockstep.storage.disk import write_atomically
from lockstep.untrusted import is_counter, parse_json, read_regular
from lockstep.workloads.trading.account.actions import ACTIONS

FORMAT, VERSION = "lockstep paper account", 1
_LARGEST_FILE = 64 << 20  # Bytes: the memory of a large network takes a few of them.
_LARGEST_NUMBER = 1e15
_KEYS = ("model", "symbol", "began", "day", "close", "first_price", "action", "bankrupt", "account", "memory")
_ABOVE_ZERO = ("strike", "listed", "peak")  # They are divided by.

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class PaperAccount:
    """An account after a day's close, and the action that was decided on then."""

    model: str
    """Hash of the weights: the memory means nothing to others."""
    symbol: str
    began: str
    """The first day that was decided on, and"""
    day: str
    """the last."""
    close: float
    """The price of that day."""
    first_price: float
    """The price of the first day."""
    action: str
    """Executed at that day's prices once the next day is read."""
    bankrupt: bool
    account: Tensors
    """The account's part of the environment's state, with E = 1 first."""
    memory: Tensors
    """The network's, likewise."""

    def write(self, path: Path) -> None:
        """Replace the file."""
        content: dict[str, Any] = {"format": FORMAT, "version": VERSION}
        for key in _KEYS:
            value = getattr(self, key)
            content[key] = {name: part[0].tolist() for name, part in value.items()} if _is_tensors(key) else value
        try:
            write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
        except OSError as error:
            raise UserError(f"account {shown_path(str(path))}: not written ({error.strerror})") from error


def read_account(path: Path, account: Tensors, memory: Tensors) -> PaperAccount | None:
    """Read and check a file; None if there is none. `account`, `memory`: tensors like those that it must have."""
    # A link that leads nowhere is a mistake, and no account that is yet to begin.
    if not path.exists() and not path.is_symlink():
        return None
    try:
        content = parse_json(read_regular(path, _LARGEST_FILE, links=True))
        return _checked(content, {"account": account, "memory": memory})
    except OSError as error:
        raise _wrong(path, error.strerror or str(error)) from error
    except json.JSONDecodeError as error:
        raise _wrong(path, f"is not JSON ({error})") from error
    except ValueError as error:
        raise _wrong(path, str(error)) from error


def _wrong(path: Path, problem: str) -> UserError:
    return UserError(
        f"account {shown_path(str(path))}: {problem}; restore it, or name a file that does not exist to begin anew"
    )


def _checked(content: Any, like: Mapping[str, Tensors]) -> PaperAccount:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError("is no paper account of `lockstep trade`")
    if content.get("version") != VERSION:
        raise ValueError(f"has version {shown(content.get('version'))}, this version of Lockstep reads {VERSION}")
    if missing := [key for key in _KEYS if key not in content]:
        raise ValueError(f"has no {missing[0]}")
    for key in ("model", "symbol", "began", "day"):
        if not isinstance(content[key], str) or len(content[key]) > 1000:
            raise ValueError(f"{key} is {shown(content[key])}, which is no text")
    for key in ("began", "day"):
        date.fromisoformat(content[key])
    for key in ("close", "first_price"):
        if not _is_number(content[key]) or content[key] <= 0:
            raise ValueError(f"{key} is {shown(content[key])}, which is no price")
    if content["action"] not in ACTIONS:
        raise ValueError(f"action is {shown(content['action'])}; allowed: {', '.join(ACTIONS)}")
    if type(content["bankrupt"]) is not bool:
        raise ValueError(f"bankrupt is {shown(content['bankrupt'])}, which is neither true nor false")
    checked: dict[str, Any] = {key: content[key] for key in _KEYS}
    checked |= {key: _tensors(key, content[key], wanted) for key, wanted in like.items()}
    return PaperAccount(**checked)


def _tensors(key: str, content: Any, like: Tensors) -> dict[str, Tensor]:
    if not isinstance(content, dict) or content.keys() != like.keys():
        raise ValueError(f"{key} does not have the parts that this model and its settings need")
    found = {}
    for name, wanted in like.items():
        values = list(_flat(content[name], wanted.shape[1:], name))
        for value in values:
            if not _fits(value, wanted.dtype) or (name in _ABOVE_ZERO and value <= 0):
                raise ValueError(f"{name} has {shown(value)}, which is out of range")
        found[name] = torch.tensor(values, dtype=wanted.dtype).view(wanted.shape)
    return found


def _flat(value: Any, shape: torch.Size, name: str) -> Iterator[Any]:
    """The numbers of nested lists of this shape."""
    if not shape:
        yield value
        return
    if not isinstance(value, list) or len(value) != shape[0]:
        raise ValueError(f"{name} has not the shape that this model and its settings need")
    for part in value:
        yield from _flat(part, shape[1:], name)


def _fits(value: Any, kind: torch.dtype) -> bool:
    if kind == torch.bool:
        return type(value) is bool
    return _is_number(value) if kind.is_floating_point else is_counter(value)


def _is_number(value: Any) -> bool:
    # False for infinity and NaN as well. Converting it to a float could fail: JSON's integers may be beyond any.
    return type(value) in (int, float) and abs(value) < _LARGEST_NUMBER


def _is_tensors(key: str) -> bool:
    return key in ("account", "memory")
