"""`--explain FIELD`: everything that is known about one setting of a workload."""

from lockstep.cli.argv import HelpWanted
from lockstep.config.fields import FieldHelp
from lockstep.config.schema import Schema
from lockstep.config.sources import Given, choices, find_setting
from lockstep.config.values import shown
from lockstep.errors import UserError
from lockstep.workloads import registry
from lockstep.workloads.workload import Workload

_FLAG = "--explain"


def offer_explanation(arguments: list[str]) -> None:
    """Raise HelpWanted if a command asks for the explanation of one setting: `train snake --explain batch_size`."""
    for position, word in enumerate(arguments):
        flag, _, name = word.partition("=")
        if flag != _FLAG:
            continue
        name = name or next(iter(arguments[position + 1 :]), "")
        if not name or position == 0:
            raise UserError(f"{_FLAG}: a workload comes before it and a setting after it: train snake {_FLAG} seed")
        workload = registry.load(arguments[0])
        raise HelpWanted(explained(workload, workload.layout(**choices(arguments[1:position])).schema, name))


def explained(workload: Workload, schema: Schema, name: str) -> str:
    """A setting: what it means, what it may be, and what it is by default and in each preset."""
    setting = find_setting(schema, Given(name, None, "--explain"))
    if setting is None:
        return f"{name}: has one answer here, and is not a setting of {workload.name}"
    item = _described(schema, setting.name)
    section = schema.section_of[setting.name]
    flags = [_flag(alias) for alias in (item.name, *item.aliases)] + ([f"--{section}.{_dashed(item.name)}"])
    lines = [
        ", ".join(flags),
        f"    {item.doc}",
        f"    allowed: {item.allowed}",
        f"    default: {_value(item.default)}",
    ]
    presets = {title: _in_preset(workload, title, item.name) for title in workload.presets}
    if len(set(presets.values())) > 1:
        lines += [f"    preset {title}: {value}" for title, value in presets.items() if value]
    return "\n".join(lines)


def _described(schema: Schema, name: str) -> FieldHelp:
    return next(item for group in schema.described() for item in group.fields if item.name == name)


def _in_preset(workload: Workload, title: str, name: str) -> str:
    """The setting's value in a preset; empty if the preset chooses an algorithm or network that has no such setting."""
    values = workload.preset(title).values()
    return _value(values[name]) if name in values else ""


def _value(value: object) -> str:
    return "none" if value in (None, "") else shown(value)


def _flag(name: str) -> str:
    return f"--{_dashed(name)}"


def _dashed(name: str) -> str:
    return name.replace("_", "-")
