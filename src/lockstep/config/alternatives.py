"""For --autotune: every configuration with the settings that were given, and sizes that learn alike."""

from collections.abc import Collection, Mapping
from typing import Any

from lockstep.config.config import AnyConfig
from lockstep.errors import UserError


def alternatives(base: AnyConfig, values: Mapping[str, Any], given: Collection[str]) -> tuple[AnyConfig, ...]:
    """The valid ones among the algorithm's sizes, the wished one or the nearest to it first; UserError if none is.

    values: what lies over the base. given: names of the settings that keep their values.
    """
    whole = base.values() | dict(values)
    # Not checked as a whole yet: sizes that do not go together are what others are looked for.
    wished = base.layout.composed(whole)
    # What was given in other units, as a number of games, has become steps.
    translated = {name for name, value in wished.values().items() if value != whole.get(name, value)}
    valid: list[AnyConfig] = []
    problems: list[UserError] = []
    for sizes in wished.algorithm.sizes_alike({*given, *translated}):
        try:
            valid.append(base.layout.config(whole | sizes))
        except UserError as problem:
            problems.append(problem)
    if not valid:
        raise problems[0]
    return tuple(valid)
