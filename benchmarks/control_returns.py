"""Returns of TD-MPC2 by task and environment steps, beside the official program's; all tasks train at once.

python benchmarks/control_returns.py [--tasks cartpole-swingup,walker-walk,...] [--seed 1] [--steps 50000]
    [--seconds 580] [--folder runs/returns] [--curves curves.csv] [--plot curves.png] [field=value]...

Each task is one `lockstep train control task=...` with the preset base on the same device. Where --seconds end first,
every run saves itself and the table shows how far they came; the same command goes on from there.
--curves keeps what was found, and the table and the plot show all seeds that it holds; --tasks "" trains nothing.
"""

import argparse
import csv
import json
import subprocess
import sys
import time
from pathlib import Path

from lockstep.errors import StoppedOnRequest

REFERENCE = {
    "cartpole-swingup": 839,
    "walker-walk": 962,
    "finger-spin": 948,
    "reacher-easy": 937,
    "cup-catch": 981,
    "pendulum-swingup": 724,
}
"""What the official program reaches after 100,000 environment steps: the mean of three seeds, from its own files."""
REPEAT = 2
"""Environment steps of an agent step."""


def run_name(task, seed):
    """What the run is called in the folder."""
    return f"{task}-seed{seed}"


def start(task, options, more):
    """The training of one task, as a process."""
    words = [f"task={task}", f"seed={options.seed}", f"steps={options.steps}", "eval_every=5000", "eval_episodes=10"]
    name = run_name(task, options.seed)
    place = ["--runs-dir", options.folder, "--run-name", name]
    with (Path(options.folder) / f"{name}.log").open("a") as log:
        command = [sys.executable, "-m", "lockstep", "train", "control", *words, *more, *place]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def evaluations(folder, name):
    """{environment steps: mean return} of a run."""
    path = Path(folder) / name / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {line["step"] * REPEAT: line["eval/return_mean"] for line in lines if "eval/return_mean" in line}


def kept(path):
    """{(task, seed): {environment steps: mean return}} of a file of curves."""
    curves = {}
    for task, seed, step, value in csv.reader(path.read_text().splitlines()[1:]) if path.exists() else []:
        curves.setdefault((task, int(seed)), {})[int(step)] = float(value)
    return curves


def keep(curves, path):
    """The file that `kept` reads."""
    with path.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["task", "seed", "environment_steps", "mean_return"])
        for (task, seed), curve in curves.items():
            lines.writerows([task, seed, step, round(value, 1)] for step, value in curve.items())


def plot(found, path):
    """The curves, a panel for each task and a line for each seed, with the reference as a cross."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, places = pyplot.subplots(2, 3, figsize=(9, 5), dpi=120, sharex=True, sharey=True, squeeze=False)
    for axes, task in zip(places.flat, dict.fromkeys(task for task, _ in found), strict=False):
        for (other, seed), curve in found.items():
            if other == task:
                axes.plot([step / 1000 for step in curve], list(curve.values()), linewidth=1.5, label=f"seed {seed}")
        if task in REFERENCE:
            axes.plot([100], [REFERENCE[task]], "x", color="black")
        axes.set_title(task, fontsize=9)
        axes.grid(alpha=0.3)
    places.flat[0].legend(fontsize=8)
    figure.supxlabel("thousand environment steps (cross: the official program, mean of three seeds)", fontsize=9)
    figure.supylabel("mean return of 10 episodes", fontsize=9)
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(REFERENCE))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50_000, help="agent steps, half as many as environment steps")
    parser.add_argument("--seconds", type=float, default=10**9)
    parser.add_argument("--folder", default="runs/returns")
    parser.add_argument("--curves", type=Path)
    parser.add_argument("--plot", default="")
    options, more = parser.parse_known_args()
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    tasks, end = [task for task in options.tasks.split(",") if task], time.monotonic() + options.seconds
    runs = [start(task, options, more) for task in tasks]
    for run in runs:
        try:
            run.wait(max(end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            run.terminate()
    for task, run in zip(tasks, runs, strict=True):
        if run.wait() not in (0, StoppedOnRequest.exit_code):
            log = Path(options.folder) / f"{run_name(task, options.seed)}.log"
            sys.exit(f"{task} ended with exit code {run.returncode}; the end of {log} says why")
    found = kept(options.curves) if options.curves else {}
    found.update({(task, options.seed): evaluations(options.folder, run_name(task, options.seed)) for task in tasks})
    if options.curves:
        keep(found, options.curves)
    columns = sorted({step for curve in found.values() for step in curve})
    print(f"{'environment steps':28}" + "".join(f"{step:>9,}" for step in columns) + f"{'official':>10}")
    for (task, seed), curve in found.items():
        row = "".join(f"{curve[step]:9.1f}" if step in curve else f"{'':9}" for step in columns)
        print(f"{f'{task}, seed {seed}':28}{row}{REFERENCE.get(task, '-'):>10}")
    if options.plot:
        plot(found, options.plot)


if __name__ == "__main__":
    main()
