"""A grid of settings: which of them a sweep gives several values or a range, and every combination of the values."""

import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.config.fields import Setting
from lockstep.config.schema import Schema
from lockstep.config.sources import Given, find_setting, read_flags, read_value
from lockstep.config.values import shown
from lockstep.errors import UserError

MOST_RUNS = 10_000
_LONGEST_NAME = 100
_DIGEST = 8
# A comma-separated piece: in quotes, in which commas belong to the value, or up to the next comma.
_PIECE = re.compile(r"""\s*+(?:"([^"]*)"|'([^']*)'|((?!["'])[^,]*))\s*(,|$)""")


@dataclass(frozen=True)
class Choice:
    """One value of a setting, and the text that the user gave for it."""

    text: str
    value: Any


@dataclass(frozen=True)
class Axis:
    """A setting that takes several values."""

    name: str
    choices: tuple[Choice, ...]

    def __str__(self) -> str:
        return f"{self.name} {', '.join(value_text(choice.value) for choice in self.choices)}"


@dataclass(frozen=True)
class Span:
    """A number that may lie anywhere between two others, both included."""

    name: str
    low: int | float
    high: int | float

    @property
    def logarithmic(self) -> bool:
        """Whether factors count and not differences: where the bounds are at least a factor of 10 apart."""
        return self.low > 0 and self.high >= 10 * self.low

    def __str__(self) -> str:
        scale = "logarithmic" if self.logarithmic else "linear"
        return f"{self.name} {value_text(self.low)}..{value_text(self.high)} ({scale})"


@dataclass(frozen=True)
class Grid:
    """What a sweep varies, and what all of its runs share."""

    axes: tuple[Axis, ...]
    spans: tuple[Span, ...]
    fixed: tuple[str, ...]
    """Settings of one value, as `name=value`."""

    def __len__(self) -> int:
        return math.prod(len(axis.choices) for axis in self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that vary."""
        return (*(axis.name for axis in self.axes), *(span.name for span in self.spans))

    def combinations(self) -> Iterator[dict[str, Choice]]:
        """Every combination of the axes' values, the last axis changing fastest."""
        for choices in itertools.product(*(axis.choices for axis in self.axes)):
            yield dict(zip((axis.name for axis in self.axes), choices, strict=True))


def read_grid(schemas: Sequence[Schema], words: Sequence[str]) -> Grid:
    """Read flags whose values may be lists (`--seed 1,2,3`) or ranges (`--learning-rate 1e-5..1e-2`).

    schemas: one for each algorithm and network of the sweep; a setting need be in one of them only.
    """
    found: dict[str, Axis | Span | str] = {}
    for given in read_flags(_with_names(schemas, words), words):
        schema = next((schema for schema in schemas if schema.find(given.key)), schemas[0])
        setting = find_setting(schema, given)
        # A key with one possible answer has no setting; it is passed on as it was given.
        found[setting.name if setting else given.key] = (
            _read_one(setting, given) if setting else f"{given.key}={given.text}"
        )
    grid = Grid(
        tuple(part for part in found.values() if isinstance(part, Axis)),
        tuple(part for part in found.values() if isinstance(part, Span)),
        tuple(part for part in found.values() if isinstance(part, str)),
    )
    if len(grid) > MOST_RUNS:
        raise UserError(f"{len(grid):,} combinations: more than the {MOST_RUNS:,} that one sweep may have")
    return grid


def _with_names(schemas: Sequence[Schema], words: Sequence[str]) -> Schema:
    """The schema that knows most of the flags: reading them needs to know which ones are switches."""
    keys = [word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--")]
    return max(schemas, key=lambda schema: sum(schema.find(key) is not None for key in keys))


def _read_one(setting: Setting, given: Given) -> Axis | Span | str:
    span = _span(setting, given)
    if span is not None:
        return span
    choices = [
        Choice(text, read_value(setting, Given(given.key, text, given.where))) for text in _texts(setting, given)
    ]
    if len(choices) == 1:
        return f"{setting.name}={choices[0].text}"
    _refuse_twins(setting, given, choices)
    return Axis(setting.name, tuple(choices))


def _refuse_twins(setting: Setting, given: Given, choices: Sequence[Choice]) -> None:
    values = [choice.value for choice in choices]
    for number, choice in enumerate(choices):
        if choice.value in values[:number]:
            raise UserError(
                f"{setting.name} {shown(given.text)} ({given.where}): has {shown(choice.text)} twice; give each value "
                f"once{_quoting(setting)}"
            )


def _quoting(setting: Setting) -> str:
    return ", and put a value that has commas into quotes" if setting.kind is str and not setting.choices else ""


def split_values(text: str, *, listed: bool = False) -> list[str]:
    """Split text at its commas, except within quotes; `listed`: only if every value is in quotes.

    Raises ValueError, in a few words, for an empty value without quotes or a quote that is not closed.
    """
    if listed and not text.lstrip().startswith(('"', "'")):
        return [text]
    values, place = [], 0
    while True:
        piece = _PIECE.match(text, place)
        if piece is None:
            raise ValueError('a quote is not closed, or not at the start and end of a value, as in "a,b","c"')
        double, single, bare, comma = piece.groups()
        values.append(next(part for part in (double, single, bare) if part is not None).strip())
        if not comma and place == 0:
            return values
        if bare == "":
            raise ValueError("has an empty value between commas")
        if not comma:
            return values
        place = piece.end()


def _texts(setting: Setting, given: Given) -> list[str]:
    assert given.text is not None, "a flag always has a text"
    try:
        return split_values(given.text, listed=setting.listed)
    except ValueError as error:
        raise UserError(
            f"{setting.name} {shown(given.text)} ({given.where}): {error}; allowed: one or more values separated by "
            f"commas, each {setting.allowed}"
        ) from None


def _span(setting: Setting, given: Given) -> Span | None:
    """The range that a text means, for a number only: `..` may be part of a path."""
    if setting.kind not in (int, float) or given.text is None or ".." not in given.text or "," in given.text:
        return None
    ends = given.text.split("..")
    if len(ends) == 2:
        low, high = (read_value(setting, Given(given.key, end.strip(), given.where)) for end in ends)
        if low is not None and high is not None and low < high:
            return Span(setting.name, low, high)
    raise UserError(
        f"{setting.name} {shown(given.text)} ({given.where}): not a range; allowed: LOWER..HIGHER, each "
        f"{setting.allowed}"
    )


def value_text(value: Any) -> str:
    """A value as it is shown and may be given."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def run_name(values: Mapping[str, Any]) -> str:
    """The name of the run with these values: `learning_rate-0.0001--seed-1`.

    If the values have characters that a name cannot have, or are too long, a digest keeps the names apart.
    """
    plain = "--".join(f"{name}-{value_text(value)}" for name, value in values.items())
    clean = re.sub(r"[^A-Za-z0-9._-]+", "_", plain)
    if clean == plain and len(clean) <= _LONGEST_NAME:
        return clean
    return f"{clean[: _LONGEST_NAME - _DIGEST - 1]}-{digest(plain)}"


def digest(text: str) -> str:
    """A few letters that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
