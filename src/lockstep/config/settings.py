"""A group of settings: a dataclass whose values are checked when it is made, so that a wrong one cannot exist.

A configuration is composed of four groups: how to run, the algorithm, the workload and the network. The line under each
field is its --help; its type and marks (`Range`, `Alias`, `Spelling`) say what is allowed. Nothing here needs torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from lockstep.config.fields import settings_of, values_of
from lockstep.config.values import check, shown
from lockstep.errors import UserError


def absolute(path: str) -> str:
    """The path as it is found from any working directory: a run is used from others than it was started in."""
    return str(Path(path).absolute())


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One group of settings."""

    path_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that name a file or a folder: made absolute, and free to differ between the machines of one run."""
    foreign_keys: ClassVar[Mapping[str, str]] = {}
    """Keys that are no settings of this group, and what to use instead; `foreign_names` has those of other programs."""
    only_values: ClassVar[Mapping[str, str]] = {}
    """Keys of other programs with one possible value here: that value is accepted, any other refused."""

    def __post_init__(self) -> None:
        for setting in settings_of(type(self)).values():
            value = getattr(self, setting.name)
            try:
                # Frozen means frozen for users; a value is still put into its canonical form once, here.
                object.__setattr__(self, setting.name, check(setting, value))
            except ValueError as error:
                problem = f"{setting.name} {shown(value)}: {error}; allowed: {setting.allowed}"
                raise UserError(problem) from None
        for name in filter(lambda name: getattr(self, name), self.path_fields):
            object.__setattr__(self, name, absolute(getattr(self, name)))
        self.validate()

    def validate(self) -> None:
        """Raise UserError where fields of this group do not go together; subclasses add their rules."""

    def values(self) -> dict[str, Any]:
        """Every field with its value, in the order of declaration."""
        return values_of(self)
