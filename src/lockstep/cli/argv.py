"""Command-line arguments: which belong to the verb itself and which set fields of the run's configuration."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from lockstep.config.fields import Setting
from lockstep.config.foreign_names import FOREIGN_NAMES
from lockstep.config.schema import Schema
from lockstep.config.sources import resolve
from lockstep.config.values import is_switch_word, shown
from lockstep.errors import UserError

Options = TypeVar("Options")
_HELP = {"--help", "-h"}


class HelpWanted(Exception):
    """The user asked for help; the message is the text to print."""


def take_subject(arguments: Sequence[str], what: str, help_for: Callable[[list[str]], str]) -> tuple[str, list[str]]:
    """Split off the first argument, which names a workload or a run; raise HelpWanted if help is asked for anywhere."""
    offer_help(arguments, help_for)
    if not arguments or arguments[0].startswith("-") or "=" in arguments[0]:
        listed = {"workload": "list", "run": "runs", "workload or run": "runs"}.get(what)
        where = f"`lockstep {listed}` lists them, " if listed else ""
        instead = f", not {shown(arguments[0])}" if arguments else ""
        # A flag of another program, such as `eval --model FILE`: what it is called here.
        name = arguments[0].lstrip("-").partition("=")[0].replace("-", "_") if arguments else ""
        rest = FOREIGN_NAMES.get(name) or f"{where}--help explains the rest"
        raise UserError(f"the first argument must be a {what}{instead}; {rest}")
    return arguments[0], list(arguments[1:])


def repeated(arguments: Sequence[str]) -> list[str]:
    """A line for each flag that a command has twice, with different values: the last one counts."""
    lines, values = [], dict[str, str]()
    for word, following in pairwise([*arguments, "--"]):
        name, equals, value = word.partition("=")
        if not equals and (not word.startswith("--") or following.startswith("--")):
            continue  # Neither a field nor a flag with a value.
        name, value = name.removeprefix("--").replace("_", "-"), value if equals else following
        if values.get(name, value) != value:
            lines.append(f"--{name} is given twice, as {shown(values[name])} and as {shown(value)}; the last counts")
        values[name] = value
    return lines


def offer_help(arguments: Sequence[str], help_for: Callable[[list[str]], str]) -> None:
    """Raise HelpWanted if any argument is --help or -h."""
    if _HELP & set(arguments):
        raise HelpWanted(help_for([argument for argument in arguments if argument not in _HELP]))


def take(arguments: Sequence[str], options: Options) -> tuple[Options, list[str]]:
    """Read the flags that `options` (a dataclass of defaults) declares; returns it filled in, and the rest."""
    schema = Schema.of(type(options))
    own: list[str] = []
    others: list[str] = []
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        name, equals, _ = argument.removeprefix("--").partition("=")
        # Without dashes only `name=value` sets a field; a bare word is a value or a mistake for the caller to report.
        setting = schema.find(name) if argument.startswith("--") or equals else None
        # --no-json turns the switch `json` off. It never takes a value, so the next argument stays where it is.
        if argument.startswith("--no") and not equals and _is_switch(schema.find(name[3:])):
            own.append(argument)
            continue
        if setting is None:
            # Flags of the workload, which the verb's options do not declare, are resolved later with its own schema.
            others.append(argument)
            continue
        own.append(argument)
        if not equals and waiting and _is_value(waiting[-1], setting):
            own.append(waiting.pop())
    return resolve(options, overrides=own).config, others


def take_all(arguments: Sequence[str], options: Options) -> Options:
    """Like `take`, but any other argument is an error."""
    return resolve(options, overrides=list(arguments)).config


def take_words(arguments: Sequence[str], options: Options) -> tuple[Options, list[str]]:
    """Like `take`, for a verb about any number of runs or players: the rest are their names, and no flags."""
    options, rest = take(arguments, options)
    take_all([word for word in rest if word.startswith("-")], options)  # raises for the first one
    return options, [word for word in rest if not word.startswith("-")]


def after_switches(arguments: Sequence[str], options: object, names: Sequence[str]) -> str:
    """A hint where one of the names follows a switch: the user may have meant it as the switch's value."""
    schema = Schema.of(type(options))
    for flag, word in pairwise(arguments):
        if word in names and flag.startswith("--") and _is_switch(schema.find(flag.removeprefix("--"))):
            return f"; {flag} takes true, false or nothing"
    return ""


def check_writable(flag: str, path_text: str) -> None:
    """Raise UserError now, rather than after minutes of work, if a file that a flag names cannot be written."""
    if path_text and (problem := why_unwritable(Path(path_text))):
        raise UserError(f"--{flag} {shown(path_text)}: {problem}; give the path of a file to write")


def why_unwritable(path: Path) -> str:
    """Why no file can be written at a path; empty if nothing speaks against it."""
    try:
        if path.is_dir():
            return "is a directory"
        if path.parent.is_dir():
            return ""
        folder = shown(str(path.parent))
        return f"{folder} is a file" if path.parent.exists() else f"the directory {folder} does not exist"
    except (OSError, ValueError):  # too long, or with a null byte
        return "not a valid path"


def _is_value(argument: str, setting: Setting) -> bool:
    # A switch takes a value only if it reads as one (`--json false`); otherwise the next argument is not its own.
    return not argument.startswith("--") and (setting.kind is not bool or is_switch_word(argument))


def _is_switch(setting: Setting | None) -> bool:
    return setting is not None and setting.kind is bool


def help_text(usage: str, options: type, more: Schema | None = None) -> str:
    """The usage line, then two lines for each setting of a verb's options and of `more`, a configuration's schema."""
    lines = [f"usage: {usage}"]
    for schema in filter(None, (Schema.of(options), more)):
        for group in schema.described():
            lines += ["", group.title]
            for item in group.fields:
                names = ", ".join("--" + name.replace("_", "-") for name in (item.name, *item.aliases))
                default = "none" if item.default in (None, "") else item.default
                lines += [f"  {names}", f"      {item.doc} ({item.allowed}; default {default})"]
    return "\n".join(lines)
