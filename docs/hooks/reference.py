"""The reference of commands and settings, written from what the program itself knows of them."""

import re
from collections.abc import Iterable

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from lockstep.cli.argv import HelpWanted
from lockstep.cli.main import VERBS, dispatch
from lockstep.config.fields import FieldGroup, FieldHelp
from lockstep.config.run_settings import RunSettings
from lockstep.config.schema import Schema
from lockstep.workloads import registry
from lockstep.workloads.workload import Workload

FLAG = re.compile(r"^  (--\S.*)\n      (.*) \((.*); default (.*)\)$", re.MULTILINE)
"""A flag of --help: its names, what it means, what is allowed and the default."""
GROUP = re.compile(r"\n\n(?=[^\n]+\n  --)")
"""Before the title of a group of flags."""
FLAG_IN_TEXT = re.compile(r"(`[^`]*`)|(?<![\w-])(--[A-Za-z][\w-]*(?: (?:N|[A-Z]{2,})\b)?)")
"""Code in a text, which stays, and flags with their values that are not marked as code."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference."""
    pages = {"commands": commands(), "settings": run_settings()}
    pages |= {f"settings-{name}": workload_settings(registry.load(name)) for name in registry.names()}
    for name, content in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def commands() -> str:
    """Every verb with its usage and flags."""
    rows = [f"| [`{verb}`](#{verb}) | {_cell(_flags_as_code(summary))} |" for verb, (_, _, summary) in VERBS.items()]
    table = "\n".join(["| verb | |", "|---|---|", *rows])
    return "\n\n".join(
        [
            "# Commands",
            "This page is written from what `lockstep help VERB` prints. `-` and `_` are the same in a flag, "
            "`--flag VALUE`, `--flag=VALUE` and `flag=VALUE` as well; `--no-flag` turns a switch off.",
            table,
            *(_verb(verb, summary) for verb, (_, _, summary) in VERBS.items()),
        ]
    )


def help_of(verb: str) -> str:
    """What `lockstep help VERB` prints."""
    try:
        dispatch([verb, "--help"])
    except HelpWanted as text:
        return str(text)
    raise AssertionError(f"{verb} has no help")


def _verb(verb: str, summary: str) -> str:
    head, *groups = GROUP.split(help_of(verb))
    usage, *texts = head.removeprefix("usage: ").split("\n\n")
    lines = [line.removeprefix("       ") for line in usage.splitlines()]
    remarks = [line for line in lines if line.startswith("with ")]
    calls = "\n".join(line for line in lines if line not in remarks)
    parts = [f"## {verb}", f"{_flags_as_code(summary[0].upper() + summary[1:])}.", f"```text\n{calls}\n```"]
    parts += [f"{_flags_as_code(line[0].upper() + line[1:])}." for line in remarks]
    parts += [_text(text) for text in texts]
    for group in groups:
        title, _, flags = group.partition("\n")
        rows = [_row(names.split(", "), *facts) for names, *facts in FLAG.findall(flags)]
        parts.append("\n".join([title, "", "| flag | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _text(text: str) -> str:
    """A paragraph of --help, or a list where lines continue others."""
    lines = _flags_as_code(text).splitlines()
    if not any(line.startswith(" ") for line in lines):
        paragraph = " ".join(lines)
        return paragraph[0].upper() + paragraph[1:]
    return "\n".join(f"  {line.strip()}" if line.startswith(" ") else f"* {line}" for line in lines)


def _flags_as_code(text: str) -> str:
    return FLAG_IN_TEXT.sub(lambda found: found[1] or f"`{found[2]}`", text)


def run_settings() -> str:
    """What every run has, and where the pages of the workloads are."""
    links = "\n".join(f"* [`{name}`](settings-{name}.md): {registry.load(name).summary}" for name in registry.names())
    return "\n\n".join(
        [
            "# Settings of every run",
            "Each setting is a flag of `train`, `plan`, `sweep` and `resume`, a key of a `--config` file and an "
            "argument of `lockstep.train`. Sizes are over all ranks. `lockstep train snake --explain seed` says the "
            "same in a terminal.",
            f"The settings of each workload and its algorithm:\n\n{links}",
            _groups(Schema.of(RunSettings).described()),
        ]
    )


def workload_settings(workload: Workload) -> str:
    """What a workload adds: its own settings, those of its default algorithm and of that one's network."""
    every = {title.title for title in Schema.of(RunSettings).described()}
    groups = [group for group in workload.layout().schema.described() if group.title not in every]
    presets = ", ".join(f"`{name}`" for name in workload.presets)
    algorithms = ", ".join(f"`{name}`" for name in workload.algorithms)
    return (
        f"# Settings of {workload.name}\n\n{workload.summary}. Presets: {presets}. Algorithms: {algorithms}; the "
        "settings below are those of the first one and of its default network.\n\n"
        f"`lockstep train {workload.name} --explain FIELD` shows a setting's value in each preset. Settings that every "
        f"run has are [on their own page](settings.md).\n\n{_groups(groups)}"
    )


def _groups(groups: Iterable[FieldGroup]) -> str:
    return "\n\n".join(
        "\n".join(
            [f"## {group.title.rstrip('.')}", "", "| setting | |", "|---|---|"]
            + [_setting(item) for item in group.fields]
        )
        for group in groups
        if group.fields
    )


def _setting(item: FieldHelp) -> str:
    default = "none" if item.default in (None, "") else item.default
    return _row((item.name, *item.aliases), item.doc, item.allowed, str(default))


def _row(names: Iterable[str], doc: str, allowed: str, default: str) -> str:
    """A row of two cells, which fit a phone: the names, and below the meaning what is allowed."""
    spelled = "<br>".join(f"`{name}`" for name in names)
    meaning, values = _cell(_flags_as_code(doc)), _cell(re.sub(r"(?<=\d)_(?=\d{3})", ",", allowed))
    return f"| {spelled} | {meaning}<br><small>{values}; default&nbsp;`{_cell(default)}`</small> |"


def _cell(text: str) -> str:
    # A bar would end the cell, an angle bracket would begin a tag.
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
