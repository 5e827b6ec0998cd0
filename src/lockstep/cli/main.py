"""The command `lockstep`: dispatches to a verb, and turns every error into one line and an exit code."""

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

from lockstep import output
from lockstep.cli.argv import HelpWanted, repeated
from lockstep.config.fields import nearest
from lockstep.config.sources import UnknownSetting
from lockstep.config.values import shown
from lockstep.errors import LockstepError, RunFailed, UserError
from lockstep.launch import outcome, rank_process
from lockstep.launch.environment import launched_rank

# verb: (module under lockstep.cli, function, help line). Modules are imported on use: some of them import torch,
# which takes seconds.
VERBS = {
    "train": ("train", "train", "train a workload, on any number of ranks"),
    "resume": ("train", "resume", "continue a run, on the same or another number of ranks"),
    "sweep": ("sweep", "sweep", "train every combination of some values, several runs at once"),
    "eval": ("evaluate", "evaluate", "play whole episodes with a trained model and report"),
    "watch": ("watch", "watch", "a live page: curves, hashes, what happened, while runs train"),
    "play": ("play", "play", "watch a trained model, in the terminal or as a video"),
    "trade": ("results.trade", "trade", "decide for the newest day of data, with a paper account kept from day to day"),
    "predict": ("results.predict", "predict", "predict a match in progress: the next ball, the total, the winner"),
    "arena": ("results.arena", "arena", "play runs, scripted players and submissions against each other: Elo ratings"),
    "plan": ("plan", "plan", "print the resolved configuration and who does what; start nothing"),
    "verify": ("verify", "verify", "prove that 1 and N ranks agree, or that a run's checkpoints are intact"),
    "check": ("check", "check", "check an environment of your own: one line for each question"),
    "new": ("new", "new", "a folder to start from: an environment, a test and a README"),
    "examples": ("new", "examples", "examples to read or to copy: environments, data, an algorithm, clusters"),
    "doctor": ("doctor", "doctor", "check this machine: what is wrong, and what to set"),
    "bench": ("bench.command", "bench", "measure speed, efficiency and where the time goes"),
    "record": ("record", "record", "play whole episodes and write them to files for offline training"),
    "export": ("export", "export", "write a trained model for other programs"),
    "list": ("listing", "list_workloads", "workloads and their presets"),
    "runs": ("listing", "show_runs", "runs with their settings, state, steps and best score"),
    "compare": ("results.report", "compare_runs", "what differs between two runs: settings, curves, results, weights"),
    "report": ("results.report", "report", "runs as one HTML file: curves, results, a film, checks, commands"),
    "cache": ("listing", "show_cache", "what is kept in the user's cache, and --clear to empty it"),
    "completion": ("completion", "completion", "shell completion for bash, zsh or fish"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    output.accept_any_character()
    if launched_rank() == 0 and rank_process.LAUNCHER_VARIABLE not in os.environ:
        for line in repeated(arguments):
            output.tell(f"lockstep: note: {line}", sys.stderr)
    try:
        try:
            code = dispatch(arguments)
        except HelpWanted as help_text:
            output.show_help(str(help_text))
            code = 0
        # Output that cannot be written often shows only here, where the buffer is emptied.
        return code if (problem := output.unwritten()) is None else _not_written(problem)
    except LockstepError as error:
        outcome.write(error)
        # All ranks usually find the same user error, so only rank 0 prints it. Under our launcher every rank prints:
        # it captures their output, and shows another rank's error when only that rank found one.
        if launched_rank() == 0 or rank_process.LAUNCHER_VARIABLE in os.environ or not isinstance(error, UserError):
            # The terminal may be closed; the exit code still reports the error.
            with contextlib.suppress(OSError):
                output.show("\n".join((f"lockstep: {_told(error)}", *error.details)), sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("lockstep: interrupted", file=sys.stderr)
        return 130
    except OSError:
        # It may also be another file, or a pipe to one of our own processes, and that is a real failure.
        if (problem := output.unwritten(probe=True)) is None:
            raise
        return _not_written(problem)


def _told(error: LockstepError) -> str:
    """The message, with the workloads that have a setting which this one has not, instead of a name that is like it.

    Users of one guide try its flags on another workload.
    """
    if not isinstance(error, UnknownSetting):
        return str(error)
    from lockstep.workloads import registry

    owners = registry.with_setting(error.key)
    return f"{error.told}: not a setting here, but one of {', '.join(owners)}" if owners else str(error)


def _not_written(problem: OSError) -> int:
    """The exit code if stdout cannot be written: 0 if its reader (head, less) has seen enough."""
    if isinstance(problem, BrokenPipeError):
        return 0
    with contextlib.suppress(OSError):
        print(f"lockstep: the output cannot be written: {problem.strerror}", file=sys.stderr, flush=True)
    return RunFailed.exit_code


def dispatch(arguments: list[str]) -> int:
    """Run the verb that the arguments begin with; returns its exit code."""
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["help"]:
        output.show_help(_overview())
        return 0
    if arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    if arguments[0] in ("-V", "--version"):
        from lockstep import __version__

        print(f"lockstep {__version__}")
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        near = nearest(verb, list(VERBS))
        hint = f"the nearest is {near}; " if near else ""
        raise UserError(f"{shown(verb)}: unknown verb; {hint}known: {', '.join(VERBS)}")
    module, function, _ = VERBS[verb]
    return getattr(importlib.import_module(f"lockstep.cli.{module}"), function)(rest)


def _overview() -> str:
    lines = ["lockstep: train one model on any number of devices, with the same result", "", "verbs:"]
    lines += [f"  {verb:10} {summary}" for verb, (_, _, summary) in VERBS.items()]
    return "\n".join([*lines, "", "lockstep help VERB says more; start with: lockstep train snake --preset small"])
