"""`lockstep completion SHELL`: for the Tab key: verbs, workloads, presets, settings and runs. Needs no torch."""

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from lockstep.cli import argv as command
from lockstep.cli.new import example_files
from lockstep.config.fields import nearest
from lockstep.config.schema import Schema
from lockstep.config.sources import choices
from lockstep.errors import LockstepError, UserError
from lockstep.storage.run_summary import list_runs
from lockstep.workloads import registry

SCRIPTS = {
    "bash": """\
# lockstep: put this into ~/.bashrc:  eval "$(lockstep completion bash)"
_lockstep() {
    local IFS=$'\\n'
    COMPREPLY=($(lockstep completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
# -o default: where Lockstep has no answer, names of files are completed.
complete -o default -F _lockstep lockstep
""",
    "zsh": """\
# lockstep: put this into ~/.zshrc after compinit:  eval "$(lockstep completion zsh)"
_lockstep() {
    local -a found
    found=("${(@f)$(lockstep completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found[1]" ]]; then compadd -a found; else _files; fi
}
compdef _lockstep lockstep
""",
    "fish": """\
# lockstep: put this into ~/.config/fish/config.fish:  lockstep completion fish | source
function __lockstep_words
    set -l typed (commandline -opc) (commandline -ct)
    lockstep completion words $typed[2..-1] 2>/dev/null
end
complete -c lockstep -a '(__lockstep_words)'
""",
}
_OF_WORKLOADS = {"train", "plan", "bench", "sweep", "check", "verify", "eval", "play", "record"}
"""Verbs whose first argument may be a workload."""
_OF_SEVERAL_RUNS = {"watch", "report", "compare", "arena"}
"""Verbs each of whose arguments may be a run."""
_OF_RUNS = {"resume", "verify", "eval", "play", "trade", "predict", "export", "record", *_OF_SEVERAL_RUNS}
"""Verbs whose first argument may be a run."""
_FLAG = re.compile(r"^  (--[\w-]+(?:, --[\w-]+)*)$", re.MULTILINE)
"""A line of --help that names a flag, with its further spellings."""


def completion(arguments: list[str]) -> int:
    """The verb `completion`."""
    usage = f"usage: lockstep completion {'|'.join(SCRIPTS)}"
    command.offer_help(arguments if arguments[:1] != ["words"] else [], lambda _: usage)
    if arguments[:1] == ["words"]:
        print("\n".join(candidates(arguments[1:])))
        return 0
    if len(arguments) != 1 or arguments[0] not in SCRIPTS:
        near = nearest(arguments[0], list(SCRIPTS)) if arguments else None
        hint = f"; the nearest is {near}" if near else ""
        raise UserError(f"completion: give one shell, {', '.join(SCRIPTS)}{hint}")
    print(SCRIPTS[arguments[0]], end="")
    return 0


def candidates(words: list[str]) -> list[str]:
    """What the last of the words may become; nothing where a shell should complete names of files."""
    from lockstep.cli.main import VERBS  # it imports this module by name when the verb is used

    *before, begun = words or [""]
    # Half a command line may be wrong in any way; then nothing is offered.
    with contextlib.suppress(LockstepError):
        found = _subjects_or_flags(before, begun) if before else [*VERBS, "help"]
        return [word for word in found if word.startswith(begun)]
    return []


def _subjects_or_flags(before: list[str], begun: str) -> Iterable[str]:
    verb, *rest = before
    if begun.startswith("--"):
        return _flags(verb, rest)
    if rest and rest[-1].startswith("--"):
        return _values(verb, rest)
    if rest and verb not in _OF_SEVERAL_RUNS:
        return ()
    return [name for name in _subjects(verb) if name not in rest]


def _subjects(verb: str) -> list[str]:
    from lockstep.cli.main import VERBS

    if verb == "help":
        return list(VERBS)
    if verb == "completion":
        return list(SCRIPTS)
    if verb == "examples":
        return list(example_files())
    runs = [row.name for row in list_runs(Path("runs"))] if verb in _OF_RUNS else []
    return [*runs, *(registry.names() if verb in _OF_WORKLOADS else ())]


def _flags(verb: str, rest: list[str]) -> list[str]:
    """The flags that `lockstep VERB --help` lists."""
    from lockstep.cli.main import dispatch

    try:
        dispatch([verb, *(rest[:1] if _is_own(rest) else ()), "--help"])
    except command.HelpWanted as text:
        return [flag for line in _FLAG.findall(str(text)) for flag in line.split(", ")]
    return []


def _values(verb: str, rest: list[str]) -> list[str]:
    """The values that the flag at the end may have."""
    flag = rest[-1].removeprefix("--").replace("-", "_")
    if not _is_own(rest):
        return []
    workload = registry.load(rest[0])
    if flag == "preset":
        return list(workload.presets)
    if flag == "algorithm":
        return list(workload.algorithms)
    schema: Schema = workload.layout(**choices(rest[1:])).schema
    setting = schema.find(flag)
    if setting is None:
        return []
    return ["true", "false"] if setting.kind is bool else list(setting.choices)


def _is_own(rest: list[str]) -> bool:
    """Whether a workload of this package is named: another's code is not run because somebody pressed a key."""
    return bool(rest) and rest[0].replace("-", "_") in registry.names()
