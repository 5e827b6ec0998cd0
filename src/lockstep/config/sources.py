"""Where settings come from, the later over the earlier: a preset, a YAML file, flags."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import yaml

from lockstep.config.fields import Setting, find, nearest, spelled_names, values_of
from lockstep.config.values import from_text, shown
from lockstep.config.yaml_text import Leaf, read_file, read_text, shown_path
from lockstep.errors import UserError

Config = TypeVar("Config")


@dataclass(frozen=True)
class Resolved(Generic[Config]):
    """A configuration, and for each field the user gave, where it was given."""

    config: Config
    sources: dict[str, str]

    @property
    def explicit(self) -> frozenset[str]:
        """The fields that the user gave, in a file or as flags."""
        return frozenset(self.sources)


@dataclass(frozen=True)
class _Given:
    """One value as the user wrote it (None for a YAML null) and where."""

    key: str
    text: str | None
    where: str


def resolve(base: Config, *, config_file: str | Path | None = None, overrides: Sequence[str] = ()) -> Resolved[Config]:
    """Lay a YAML file and then flags (`--field value`, `field=value`) over a preset or a run's configuration."""
    config_class = type(base)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if config_file is not None:
        source = shown_path(config_file)
        values, sources = _from_leaves(config_class, read_file(config_file), source)
    for given in _flags(config_class, overrides):
        setting = _setting(config_class, given)
        if setting:
            values[setting.name] = _value(setting, given)
            sources[setting.name] = given.where
    return Resolved(dataclasses.replace(cast(Any, base), **values), sources)


def to_yaml(config: Any) -> str:
    """Write every field on a line, in the order of declaration; `from_yaml` gives back an equal configuration."""
    return yaml.safe_dump(values_of(config), sort_keys=False, allow_unicode=True, width=100_000)


def from_yaml(text: str, config_class: type[Config], source: str = "config.yaml") -> Config:
    """Read the configuration that a YAML text holds; what it leaves out keeps its default."""
    values, _ = _from_leaves(config_class, read_text(text, source), source)
    return config_class(**values)


def _from_leaves(config_class: type, leaves: list[Leaf], source: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Read values and sources by field. Sections are for the reader's eye: a leaf counts by its own name."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for leaf in leaves:
        given = _Given(leaf.path[-1], leaf.text, f"{source}:{leaf.line}")
        for section in leaf.path[:-1]:
            if setting := find(config_class, section):
                raise UserError(
                    f"{setting.name} ({given.where}): needs a value, not a section; allowed: {setting.allowed}"
                )
        setting = _setting(config_class, given)
        if setting and setting.name in values:
            raise UserError(
                f"{setting.name} {shown(leaf.text)} ({given.where}): given before, at {sources[setting.name]}"
            )
        if setting:
            values[setting.name] = _value(setting, given)
            sources[setting.name] = given.where
    return values, sources


def _flags(config_class: type, tokens: Sequence[str]) -> Iterator[_Given]:
    """Read the words of a command line, one setting at a time."""
    words = list(reversed(tokens))
    while words:
        word = words.pop()
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            if not equals or not name:
                raise UserError(f"{shown(word)}: not a setting; allowed: --field value or field=value")
            yield _Given(name, text, f"override {shown(name)}=")
            continue
        where = f"flag --{name}" if name.isprintable() and len(name) <= 60 else f"flag {shown(word)}"
        negated = find(config_class, name[3:]) if name.startswith(("no-", "no_")) else None
        setting = find(config_class, name)
        is_switch = setting is not None and setting.kind is bool
        has_value = bool(words) and not words[-1].startswith("--")
        if equals:
            yield _Given(name, text, where)
        elif negated and negated.kind is bool:
            yield _Given(negated.name, "false", where)
        elif is_switch and (not has_value or "=" in words[-1]):
            yield _Given(name, "true", where)
        elif has_value:
            yield _Given(name, words.pop(), where)
        else:
            _setting(config_class, _Given(name, None, where))
            raise UserError(
                f"{shown(name)} ({where}): a value is needed; allowed: {setting.allowed if setting else 'one'}"
            )


def _setting(config_class: type, given: _Given) -> Setting | None:
    """Find the field a key means; None where it is a key that has one answer here, and that one was given."""
    if setting := find(config_class, given.key):
        return setting
    told = f"{shown(given.key)} {shown(given.text)} ({given.where})"
    only = getattr(config_class, "only_values", {}).get(given.key.replace("-", "_"))
    elsewhere = getattr(config_class, "told_elsewhere", {}).get(given.key.replace("-", "_"))
    if only is not None and str(given.text).lower() == only.lower():
        return None
    if elsewhere is not None:
        raise UserError(f"{told}: not a setting of a run; {elsewhere}")
    if only is None:
        names = {key: f"--{key}" for key in getattr(config_class, "told_elsewhere", {})} | spelled_names(config_class)
        near = nearest(given.key.replace("-", "_"), list(names))
        hint = f"the nearest name is {names[near]}" if near else "no known name is near it"
        raise UserError(f"{told}: unknown setting; {hint}; --help lists all")
    raise UserError(f"{told}: cannot be chosen here; allowed: {only}")


def _value(setting: Setting, given: _Given) -> Any:
    """Read the typed value, or tell the user in one line why it cannot be."""
    try:
        return from_text(setting, given.text)
    except ValueError as error:
        told = f"{setting.name} {shown(given.text)} ({given.where})"
        raise UserError(f"{told}: {error}; allowed: {setting.allowed}") from None
