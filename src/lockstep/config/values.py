"""From what a user wrote to a typed value, or a ValueError that says in a few words what is wrong with it."""

import math
import re
from decimal import Decimal
from typing import Any

from lockstep.config.fields import Setting

_NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][+-]?\d+)?", re.ASCII)
_SWITCH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_LARGEST_WHOLE = 2**63 - 1
_LARGEST_NUMBER = 3.4e38  # What float32 holds; a device would turn anything beyond into an infinity.
_LONGEST_TEXT = 1024
_LONGEST_NAME = 255


def is_switch_word(text: str) -> bool:
    """Tell whether a word can be the value of a boolean, so that `--flag` may be followed by one or not."""
    return text.lower() in _SWITCH


def shown(value: Any) -> str:
    """Write a value or key as an error message shows it: on one line, escaped and cut short where it is odd."""
    text = "null" if value is None else value if isinstance(value, str) else repr(value)
    if re.fullmatch(r"[\w.+-]{1,60}", text, re.ASCII):
        return text
    return repr(text if len(text) <= 60 else text[:57] + "...")


def from_text(setting: Setting, text: str | None) -> Any:
    """Read the value of a setting from its text; None stands for a YAML null."""
    if text is None or (setting.optional and text.lower() in ("none", "null", "")):
        return check(setting, None)
    text = setting.spellings.get(text, text)
    if setting.kind is str:
        return check(setting, text)
    if setting.kind is bool:
        if not is_switch_word(text):
            raise ValueError("not a switch")
        return _SWITCH[text.lower()]
    return check(setting, _whole(text) if setting.kind is int else _number(text))


def check(setting: Setting, value: Any) -> Any:
    """Give back the value if it suits the setting; a whole number becomes a float where one is asked for."""
    if setting.none_is_empty and (value is None or str(value).lower() in ("none", "null")):
        return ""
    if value is None:
        if not setting.optional:
            raise ValueError("a value is needed")
        return None
    if setting.kind is float and type(value) is int:
        value = float(value) if abs(value) <= _LARGEST_WHOLE else math.inf
    if type(value) is not setting.kind:
        raise ValueError(f"is of type {type(value).__name__}")
    if setting.kind is str:
        _check_text(setting, value)
    elif setting.kind is not bool:
        _check_number(setting, value)
    return value


def _check_text(setting: Setting, value: Any) -> None:
    if setting.choices and value not in setting.choices:
        raise ValueError("no such choice")
    if not value.isprintable():
        raise ValueError("has a character that cannot be printed")
    if not all(re.fullmatch(pattern.expression, value) for pattern in setting.patterns):
        raise ValueError("does not fit")
    if len(value) > _LONGEST_TEXT:
        raise ValueError(f"longer than {_LONGEST_TEXT} characters")
    # Most texts are paths: a name that no file system takes would otherwise fail wherever it is first looked at.
    if any(len(part.encode(errors="replace")) > _LONGEST_NAME for part in re.split("[/,]", value)):
        raise ValueError(f"has a name longer than {_LONGEST_NAME} bytes in it")


def _check_number(setting: Setting, value: Any) -> None:
    if not math.isfinite(value) or (setting.kind is float and abs(value) > _LARGEST_NUMBER):
        raise ValueError("not a finite number")
    if abs(value) > _LARGEST_WHOLE and setting.kind is int:
        raise ValueError(f"beyond {_LARGEST_WHOLE}")
    if not all(value in bounds for bounds in setting.ranges):
        raise ValueError("out of range")


def _whole(text: str) -> int:
    """Read an integer, also from 1_000_000, 1e6 or 2.50e3: anything whose value is whole."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("not a whole number")
    try:
        number = Decimal(text)
    except ArithmeticError:
        raise ValueError("not a whole number") from None
    # The size comes first: spelling out 1e999999 as an integer would take a megabyte.
    if number.copy_abs() > _LARGEST_WHOLE:
        raise ValueError(f"beyond {_LARGEST_WHOLE}")
    if number != number.to_integral_value():
        raise ValueError("not a whole number")
    return int(number)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError("not a finite number")
    return float(text.replace("_", ""))
