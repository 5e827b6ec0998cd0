"""The words of a command line: which belong to the verb itself and which set fields of the run."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from lockstep.config.fields import Setting, describe_fields, find
from lockstep.config.sources import resolve
from lockstep.config.values import is_switch_word
from lockstep.errors import UserError

Options = TypeVar("Options")
_HELP = {"--help", "-h"}


class HelpWanted(Exception):
    """The user asked for help; its text is what to print."""


def take_subject(words: Sequence[str], what: str, help_for: Callable[[list[str]], str]) -> tuple[str, list[str]]:
    """The word that a verb is about (a workload, a run), which comes first; or help, wherever it was asked for."""
    offer_help(words, help_for)
    if not words or words[0].startswith("-") or "=" in words[0]:
        where = "list" if what == "workload" else "runs"
        raise UserError(f"a {what} is needed first; `lockstep {where}` shows what there is, --help how to go on")
    return words[0], list(words[1:])


def offer_help(words: Sequence[str], help_for: Callable[[list[str]], str]) -> None:
    """Raise the help text if it was asked for."""
    if _HELP & set(words):
        raise HelpWanted(help_for([word for word in words if word not in _HELP]))


def take(words: Sequence[str], options: Options) -> tuple[Options, list[str]]:
    """Read the flags that `options` (a dataclass of defaults) declares; returns it filled in, and the other words."""
    own: list[str] = []
    others: list[str] = []
    waiting = list(reversed(words))
    while waiting:
        word = waiting.pop()
        name, equals, _ = word.removeprefix("--").partition("=")
        setting = find(type(options), name) if word.startswith("--") or equals else None
        if word.startswith("--no") and not equals and _is_switch(find(type(options), name[3:])):
            own.append(word)
            continue
        if setting is None:
            others.append(word)
            continue
        own.append(word)
        if not equals and waiting and _is_value(waiting[-1], setting):
            own.append(waiting.pop())
    return resolve(options, overrides=own).config, others


def take_all(words: Sequence[str], options: Options) -> Options:
    """As `take`, where no other words are allowed."""
    return resolve(options, overrides=list(words)).config


def _is_value(word: str, setting: Setting) -> bool:
    return not word.startswith("--") and (setting.kind is not bool or is_switch_word(word))


def _is_switch(setting: Setting | None) -> bool:
    return setting is not None and setting.kind is bool


def help_text(usage: str, *classes: type) -> str:
    """Usage and every field of some option classes, two lines each."""
    lines = [f"usage: {usage}"]
    for options in classes:
        for group in describe_fields(options):
            lines += ["", group.title]
            for item in group.fields:
                names = ", ".join("--" + name.replace("_", "-") for name in (item.name, *item.aliases))
                default = "none" if item.default in (None, "") else item.default
                lines += [f"  {names}", f"      {item.doc} ({item.allowed}; default {default})"]
    return "\n".join(lines)
