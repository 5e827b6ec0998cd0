"""What a configuration class says about its fields: type, range, other names, and the line of help under each."""

import ast
import difflib
import functools
import inspect
import textwrap
import types
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Range:
    """Between which bounds a number may lie: `Annotated[float, Range(above=0)]`. Never NaN or an infinity."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        bounds = {"of at least": self.at_least, "above": self.above, "at most": self.at_most, "below": self.below}
        if self.at_least is not None and self.at_most is not None:
            return f"from {self.at_least:_} to {self.at_most:_}"
        return " and ".join(f"{word} {bound:_}" for word, bound in bounds.items() if bound is not None)


@dataclass(frozen=True)
class Pattern:
    """What a text must match as a whole, also in words: `Annotated[str, Pattern("[a-z]+", "small letters")]`."""

    expression: str
    words: str


@dataclass(frozen=True)
class Alias:
    """Another name for a field: `Annotated[float, Alias("lr")]`."""

    name: str


@dataclass(frozen=True)
class Spelling:
    """Another spelling of one of a field's values: `Annotated[Literal["bf16"], Spelling("amp", "bf16")]`."""

    text: str
    value: str


@dataclass(frozen=True)
class Listed:
    """Commas belong to the value of this text, a list: `Annotated[str, Listed()]`. A sweep does not split it there."""


@dataclass(frozen=True)
class NoneIsEmpty:
    """This text may be left open: `none`, `null` and a YAML null mean the same as an empty one."""


OptionalPath = Annotated[str, NoneIsEmpty()]
"""A file, a folder or a run, or none of them. A folder that is really called none is written ./none."""
Count = Annotated[int, Range(at_least=1)]
"""A whole number of at least 1."""
OffOrCount = Annotated[int, Range(at_least=0)]
"""A whole number, 0 meaning off, automatic or without limit, as the field's line says."""
Seed = Annotated[int, Range(at_least=0, at_most=2**63 - 1)]
"""Where random numbers start from: two different ones never give the same."""
Steps = Annotated[int, Range(at_least=0, at_most=10**15)]
"""A number of steps over all ranks, or of updates."""
Fraction = Annotated[float, Range(at_least=0, at_most=1)]
"""A number from 0 to 1."""


@dataclass(frozen=True)
class Setting:
    """One field of a configuration class, as far as reading and checking a value needs to know it."""

    name: str
    kind: type
    choices: tuple[str, ...]
    optional: bool
    ranges: tuple[Range, ...]
    patterns: tuple[Pattern, ...]
    aliases: tuple[str, ...]
    spellings: dict[str, str]
    listed: bool
    none_is_empty: bool
    default: Any

    @property
    def allowed(self) -> str:
        """What may be given, in words."""
        noun = {bool: "true or false", int: "a whole number", float: "a number", str: "text on one line"}[self.kind]
        words = "one of " + ", ".join((*self.choices, *self.spellings)) if self.choices else noun
        patterns = " and ".join(pattern.words for pattern in self.patterns)
        bounds = " and ".join(str(bounds) for bounds in self.ranges)
        # Those of a choice are among its words already.
        others = "" if self.choices else " or ".join(("", *self.spellings)).strip()
        may_be_none = self.optional or self.none_is_empty
        return " ".join(filter(None, (patterns or words, bounds, others, "or none" if may_be_none else "")))


@dataclass(frozen=True)
class FieldHelp:
    """What --help shows of one field."""

    name: str
    allowed: str
    default: Any
    doc: str
    aliases: tuple[str, ...]


@dataclass(frozen=True)
class FieldGroup:
    """The fields one configuration class declares, under the first line of its docstring."""

    title: str
    fields: tuple[FieldHelp, ...]


def settings_of(config_class: type) -> dict[str, Setting]:
    """List every field of a configuration class by name, in the order of declaration."""
    return _settings(config_class)


def values_of(config: Any) -> dict[str, Any]:
    """Every field of a configuration with its value, in the order of declaration."""
    return {name: getattr(config, name) for name in settings_of(type(config))}


def nearest(word: str, known: list[str]) -> str:
    """Find the known name that a word begins or is most like; an empty string where there is none."""
    # Comparing costs the product of the lengths; no known name is anywhere near 64 characters.
    word = word[:64].lower()
    begun = [name for name in known if name.startswith(word)] if len(word) > 1 else []
    # Less alike than this is another word: `resume` is no `preset`, `num_workers` no `num_layers`. In a short word one
    # wrong letter weighs more.
    alike = begun or difflib.get_close_matches(word, known, n=1, cutoff=0.7 if len(word) > 5 else 0.65)
    return alike[0] if alike else ""


def describe_fields(config_class: type) -> list[FieldGroup]:
    """List every field for --help, grouped by the class that declares it, the most particular class first."""
    settings = settings_of(config_class)
    line_of: dict[str, str] = {}
    for owner in reversed(config_class.__mro__):
        line_of |= _doc_lines(owner)
    groups, shown = [], set[str]()
    for owner in config_class.__mro__[:-1]:
        own = [name for name in settings if name in inspect.get_annotations(owner) and name not in shown]
        shown.update(own)
        helps = tuple(
            FieldHelp(
                name, settings[name].allowed, settings[name].default, line_of.get(name, ""), settings[name].aliases
            )
            for name in own
        )
        groups.append(FieldGroup((owner.__doc__ or owner.__name__).strip().splitlines()[0], helps))
    return [group for group in groups if group.fields]


@functools.cache
def _settings(config_class: type) -> dict[str, Setting]:
    hints = get_type_hints(config_class, include_extras=True)
    return {item.name: _setting(item.name, hints[item.name], item.default) for item in fields(config_class)}


def _setting(name: str, hint: Any, default: Any) -> Setting:
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        marks = tuple(rest)
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    optional = type(None) in members
    (kind,) = (member for member in members if member is not type(None))
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    kind = str if choices else kind
    assert kind in (bool, int, float, str), f"{name}: a setting cannot be {hint}"
    assert default is not MISSING, f"{name}: a setting needs a default"
    return Setting(
        name=name,
        kind=kind,
        choices=choices,
        optional=optional,
        ranges=tuple(mark for mark in marks if isinstance(mark, Range)),
        patterns=tuple(mark for mark in marks if isinstance(mark, Pattern)),
        aliases=tuple(mark.name for mark in marks if isinstance(mark, Alias)),
        spellings={mark.text: mark.value for mark in marks if isinstance(mark, Spelling)},
        listed=any(isinstance(mark, Listed) for mark in marks),
        none_is_empty=any(isinstance(mark, NoneIsEmpty) for mark in marks),
        default=default,
    )


def _doc_lines(owner: type) -> dict[str, str]:
    """Read the line under each field from the source, since Python drops it; nothing where there is no source."""
    try:
        source = textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):
        return {}
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.ClassDef)
    lines = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            lines[field.target.id] = str(ast.literal_eval(below.value))
    return lines
