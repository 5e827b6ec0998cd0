"""The commands that make a run again."""

import shlex

from lockstep.config.grid import value_text
from lockstep.config.run_settings import PLACES
from lockstep.reports.recorded_run import RecordedRun


def commands(run: RecordedRun) -> list[str]:
    """Shell commands with a comment each: start it again, check it, watch it."""
    found = []
    started = run.system.get("command")
    if isinstance(started, list) and all(isinstance(word, str) for word in started):
        # The first word is the path of the program on the machine it ran on.
        found += ["# as it was last started", shlex.join(["lockstep", *started[1:100]]), ""]
    found += ["# the same run again, from its settings", train_command(run), ""]
    name = shlex.quote(run.name)
    found += ["# are its files what was written? how good is it? what does it look like?"]
    return [*found, f"lockstep verify {name}", f"lockstep eval {name}", f"lockstep play {name}"]


def train_command(run: RecordedRun) -> str:
    """The command that trains a run anew; from its own file of settings if the preset is not recorded."""
    words = ["lockstep", "train", run.summary.workload or "WORKLOAD"]
    if run.summary.preset:
        words += ["--preset", run.summary.preset]
        changed = {name: value for name, value in run.summary.changed.items() if name not in PLACES}
        words += [f"--{name.replace('_', '-')}={value_text(value)}" for name, value in changed.items()]
    else:
        words += ["--config", str(run.path / "config.yaml")]
    # One rank too: on a machine with several GPUs the default would be one on each.
    if run.ranks:
        words += ["--ranks", str(run.ranks)]
    return shlex.join([*words, "--run-name", f"{run.name[:90]}-again"])
