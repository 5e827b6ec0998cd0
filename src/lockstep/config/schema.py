"""Every setting that a configuration or a command's options have, found by any of its names."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from lockstep.config.fields import FieldGroup, FieldHelp, Setting, describe_fields, nearest, settings_of
from lockstep.config.values import shown
from lockstep.errors import UserError


@dataclass(frozen=True)
class Schema:
    """Groups of settings by section, in the order in which they are shown."""

    sections: Mapping[str, type]
    """The class of each section; a flag may name the section, too: `--ppo.learning-rate`."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Further names of settings, besides those that the settings themselves have."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults that are others here than those that the settings themselves have."""

    @classmethod
    def of(cls, options: type) -> "Schema":
        """The schema of one class of options."""
        return cls({"": options})

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """Every setting by its name."""
        return {name: setting for group in self.sections.values() for name, setting in settings_of(group).items()}

    @cached_property
    def names(self) -> dict[str, str]:
        """Every name that a setting may be given by, with the setting that it means."""
        names = {name: name for name in self.settings}
        for setting in self.settings.values():
            for alias in setting.aliases:
                # Where an alias is another group's own name (n_step, n_steps), that group means it.
                names.setdefault(alias, setting.name)
        return names | {alias: name for alias, name in self.aliases.items() if name in self.settings}

    @cached_property
    def section_of(self) -> dict[str, str]:
        """The section that each setting is in."""
        found: dict[str, str] = {}
        for section, group in self.sections.items():
            for name in settings_of(group):
                if name in found:
                    # A flat flag must mean one setting, so two groups of one configuration share no name.
                    raise UserError(
                        f"{name}: a setting of {found[name]} and of {section}; rename it in {group.__name__}"
                    )
                found[name] = section
        return found

    def find(self, key: str) -> Setting | None:
        """The setting that a key means; `-` and `_` are the same, and a section may come before a dot."""
        section, dot, key = key.replace("-", "_").rpartition(".")
        name = self.names.get(key)
        if name is None or (dot and self.section_of[name] != section):
            return None
        return self.settings[name]

    def gathered(self, attribute: str) -> dict[str, str]:
        """A mapping that each group may have as a class attribute, of all groups together."""
        return {key: text for group in self.sections.values() for key, text in getattr(group, attribute, {}).items()}

    def split(self, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The values of each section."""
        parts: dict[str, dict[str, Any]] = {section: {} for section in self.sections}
        for name, value in values.items():
            if name not in self.section_of:
                near = nearest(name, list(self.section_of))
                hint = f"; the nearest is {near}" if near else ""
                raise UserError(f"{shown(name)}: unknown setting{hint}")
            parts[self.section_of[name]][name] = value
        return parts

    def described(self) -> list[FieldGroup]:
        """What --help shows: the groups of the problem and what learns it first, how to run last."""
        groups = [group for section in reversed(list(self.sections.values())) for group in describe_fields(section)]
        return [replace(group, fields=tuple(map(self._with_default, group.fields))) for group in groups]

    def _with_default(self, item: FieldHelp) -> FieldHelp:
        return replace(item, default=self.defaults.get(item.name, item.default))
