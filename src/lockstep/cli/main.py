"""The command `lockstep`: finds the verb, and turns every error into one line and an exit code."""

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

from lockstep.cli.argv import HelpWanted
from lockstep.config.fields import nearest
from lockstep.errors import LockstepError, UserError
from lockstep.launch import rank_process
from lockstep.launch.environment import launched_rank

# verb: (module under lockstep.cli, function, what it does)
VERBS = {
    "train": ("train", "train", "train a workload, on any number of ranks"),
    "resume": ("train", "resume", "go on with a run, on the same or another number of ranks"),
    "eval": ("evaluate", "evaluate", "play whole episodes with a trained model and report"),
    "play": ("play", "play", "watch a trained model, in the terminal or as a video"),
    "plan": ("plan", "plan", "print the resolved configuration and who does what; start nothing"),
    "verify": ("verify", "verify", "prove that 1 and N ranks agree, or that a run's checkpoints are intact"),
    "doctor": ("doctor", "doctor", "look at this machine: what is wrong, and what to set"),
    "bench": ("bench", "bench", "measure speed, efficiency and where the time goes"),
    "record": ("record", "record", "play whole episodes and write them, to learn from without acting"),
    "export": ("export", "export", "write a trained model for other programs"),
    "list": ("listing", "list_workloads", "workloads and their presets"),
    "runs": ("listing", "list_runs", "runs with their state, steps and best score"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            return _dispatch(words)
        except HelpWanted as wish:
            print(wish, flush=True)
            return 0
    except LockstepError as error:
        # What the user got wrong, all ranks notice alike as a rule: one of them says it. Our launcher keeps what the
        # others say, and shows it where one of them alone has noticed something.
        if launched_rank() == 0 or rank_process.LAUNCHER_VARIABLE in os.environ or not isinstance(error, UserError):
            # A terminal that was closed takes no line; the exit code tells it all the same.
            with contextlib.suppress(OSError):
                print("\n".join((f"lockstep: {error}", *error.details)), file=sys.stderr, flush=True)
        return error.exit_code
    except KeyboardInterrupt:
        print("lockstep: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # A pipe to a process of our own may have broken as well, and that is a failure.
        if not _reader_is_gone():
            raise
        # The reader (head, less) has seen enough; the interpreter must not complain when it flushes at exit.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        return 0


def _reader_is_gone() -> bool:
    """Whether nobody reads stdout any more: what could not be written is still in its buffer."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        return True
    return False


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if words[0] in ("-V", "--version"):
        from lockstep import __version__

        print(f"lockstep {__version__}")
        return 0
    verb, *rest = words
    if verb not in VERBS:
        near = nearest(verb, list(VERBS))
        hint = f"the nearest is {near}; " if near else ""
        raise UserError(f"'{verb}': unknown verb; {hint}known: {', '.join(VERBS)}")
    module, function, _ = VERBS[verb]
    return getattr(importlib.import_module(f"lockstep.cli.{module}"), function)(rest)


def _overview() -> str:
    lines = ["lockstep: train one model on any number of devices, with the same result", "", "verbs:"]
    lines += [f"  {verb:8} {what}" for verb, (_, _, what) in VERBS.items()]
    return "\n".join([*lines, "", "lockstep VERB --help says more; start with: lockstep train snake --preset small"])
