"""Where settings come from, the later over the earlier: a preset, a YAML file, flags."""

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import yaml

from lockstep.config.alternatives import alternatives
from lockstep.config.config import AnyConfig, Config, Layout
from lockstep.config.fields import Setting, nearest
from lockstep.config.foreign_names import FOREIGN_NAMES, same_thing
from lockstep.config.schema import Schema
from lockstep.config.values import from_text, shown
from lockstep.config.yaml_text import Leaf, read_file, read_text, shown_path
from lockstep.errors import UserError

Options = TypeVar("Options")


@dataclass(frozen=True)
class Resolved(Generic[Options]):
    """A configuration, and for each setting the user gave, where it was given."""

    config: Options
    sources: dict[str, str]
    alternatives: tuple[Options, ...] = ()
    """With autotune: the configurations to choose from, `config` first."""

    @property
    def explicit(self) -> frozenset[str]:
        """The settings that the user gave, in a file or as flags."""
        return frozenset(self.sources)


@dataclass(frozen=True)
class Given:
    """One value as the user wrote it (None for a YAML null) and where."""

    key: str
    text: str | None
    where: str


class UnknownSetting(UserError):
    """A key that means nothing in the configuration it was given for."""

    key = ""
    """The key, with underscores; another workload may know it."""
    told = ""
    """The key as it was given, with its value and where that was."""


def resolve(
    base: Options, *, config_file: str | Path | None = None, overrides: Sequence[str] = ()
) -> Resolved[Options]:
    """Lay a YAML file and then flags (`--field value`, `field=value`) over a configuration or a verb's options."""
    schema = _schema_of(base)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if config_file is not None:
        values, sources = _from_leaves(schema, read_file(config_file), shown_path(config_file))
    for given in read_flags(schema, overrides):
        setting = find_setting(schema, given)
        if setting:
            values[setting.name] = read_value(setting, given)
            sources[setting.name] = given.where
    if isinstance(base, Config) and values.get("autotune"):
        found = alternatives(base, values, sources)
        return Resolved(cast(Options, found[0]), sources, cast(tuple[Options, ...], found))
    changed = base.replace(**values) if isinstance(base, Config) else dataclasses.replace(cast(Any, base), **values)
    return Resolved(cast(Options, changed), sources)


def _schema_of(base: Any) -> Schema:
    return base.layout.schema if isinstance(base, Config) else Schema.of(type(base))


def to_yaml(config: AnyConfig) -> str:
    """Write every setting on a line, group by group; `from_yaml` gives back an equal configuration."""
    sections = config.layout.schema.split(config.values())
    written = (
        f"# {section}\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100_000)}"
        for section, values in sections.items()
        if values
    )
    return "".join(written)


def from_yaml(text: str, layout: Layout, source: str = "config.yaml") -> AnyConfig:
    """Read the configuration that a YAML text holds; what it leaves out keeps its default."""
    values, _ = _from_leaves(layout.schema, read_text(text, source), source)
    return layout.config(values)


def choices(words: Sequence[str], config_file: str | Path | None = None) -> dict[str, str]:
    """The algorithm and the network that a file or flags name: they decide which other settings there are."""
    return given(words, config_file, _CHOICES)


def given(words: Sequence[str], config_file: str | Path | None, names: Collection[str]) -> dict[str, str]:
    """The texts that a file or flags give for some settings of the run, before there is a schema to read the rest."""
    chosen = _chosen(read_file(config_file), names) if config_file is not None else {}
    for word, following in zip(words, [*words, ""][1:], strict=True):
        key, equals, text = word.removeprefix("--").removeprefix("run.").partition("=")
        key = key.replace("-", "_")
        if key in names and (equals or word.startswith("--")):
            chosen[key] = text if equals else following
    return chosen


def choices_in(text: str, source: str = "config.yaml") -> dict[str, str]:
    """The algorithm and the network that a YAML text names."""
    return _chosen(read_text(text, source), _CHOICES)


_CHOICES = ("algorithm", "network")


def _chosen(leaves: list[Leaf], names: Collection[str]) -> dict[str, str]:
    return {leaf.path[-1]: leaf.text for leaf in leaves if leaf.path[-1] in names and leaf.text}


def _from_leaves(schema: Schema, leaves: list[Leaf], source: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Read values and sources by setting. Sections are for the reader's eye: a leaf counts by its own name."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for leaf in leaves:
        given = Given(leaf.path[-1], leaf.text, f"{source}:{leaf.line}")
        for section in leaf.path[:-1]:
            if setting := schema.find(section):
                raise UserError(
                    f"{setting.name} ({given.where}): needs a value, not a section; allowed: {setting.allowed}"
                )
        setting = find_setting(schema, given)
        if setting and setting.name in values and values[setting.name] != read_value(setting, given):
            raise UserError(
                f"{setting.name} {shown(leaf.text)} ({given.where}): given before, at {sources[setting.name]}"
            )
        if setting:
            values[setting.name] = read_value(setting, given)
            sources[setting.name] = given.where
    return values, sources


def read_flags(schema: Schema, tokens: Sequence[str]) -> Iterator[Given]:
    """Read the words of a command line, one setting at a time."""
    words = list(reversed(tokens))
    while words:
        word = words.pop()
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            if not equals or not name:
                raise UserError(f"{shown(word)}: not a setting; allowed: --field value or field=value")
            yield Given(name, text, f"override {shown(name)}=")
            continue
        where = f"flag --{name}" if name.isprintable() and len(name) <= 60 else f"flag {shown(word)}"
        negated = schema.find(name[3:]) if name.startswith(("no-", "no_")) else None
        setting = schema.find(name)
        is_switch = setting is not None and setting.kind is bool
        has_value = bool(words) and not words[-1].startswith("--")
        if equals:
            yield Given(name, text, where)
        elif negated and negated.kind is bool:
            yield Given(negated.name, "false", where)
        elif is_switch and (not has_value or "=" in words[-1]):
            yield Given(name, "true", where)
        elif has_value:
            given = [words.pop()]
            # A list may also be given as words: `--symbols SPY QQQ IWM`.
            while setting is not None and setting.listed and words and _is_plain(words[-1]):
                given.append(words.pop())
            yield Given(name, ",".join(given), where)
        else:
            find_setting(schema, Given(name, None, where))
            raise UserError(
                f"{shown(name)} ({where}): a value is needed; allowed: {setting.allowed if setting else 'one'}"
            )


def _is_plain(word: str) -> bool:
    """Whether a word is neither a flag nor `field=value`."""
    return not word.startswith("-") and "=" not in word


def find_setting(schema: Schema, given: Given) -> Setting | None:
    """Find the field a key means; None where it is a key that has one answer here, and that one was given."""
    if setting := schema.find(given.key):
        return setting
    key = given.key.replace("-", "_")
    value = "" if given.text is None else f" {shown(given.text)}"
    told = f"{shown(given.key)}{value} ({given.where})"
    elsewheres = schema.gathered("foreign_keys")
    only = schema.gathered("only_values").get(key)
    elsewhere = elsewheres.get(key) or FOREIGN_NAMES.get(key)
    if only is not None and str(given.text).lower() == only.lower():
        return None
    if only is not None:
        raise UserError(f"{told}: cannot be chosen here; allowed: {only}" + (f"; {elsewhere}" if elsewhere else ""))
    if elsewhere is not None:
        raise UserError(f"{told}: not a setting of a run; {elsewhere}")
    if same := same_thing(key, schema.settings):
        raise UserError(f"{told}: not a setting here; the one for it is {' or '.join(same)}; --help lists all")
    names = {word: f"--{word}" for word in elsewheres} | schema.names
    near = nearest(key, list(names))
    hint = f"the nearest name is {names[near]}" if near else "no known name is near it"
    unknown = UnknownSetting(f"{told}: unknown setting; {hint}; --help lists all")
    unknown.key, unknown.told = key, told
    raise unknown


def read_value(setting: Setting, given: Given) -> Any:
    """Read the typed value, or tell the user in one line why it cannot be."""
    try:
        return from_text(setting, given.text)
    except ValueError as error:
        told = f"{setting.name} {shown(given.text)} ({given.where})"
        raise UserError(f"{told}: {error}; allowed: {setting.allowed}") from None
