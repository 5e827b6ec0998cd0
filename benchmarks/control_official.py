"""Agent steps per second of TD-MPC2: the official program and Lockstep, one after the other on this machine.

python benchmarks/control_official.py --official tdmpc2/tdmpc2 [--packages DIR] [--task walker-walk] [--steps 6000]
    [--ours ""] [--ours "num_envs=16 updates_per_step=0.25"]

`--official` is the folder of nicklashansen/tdmpc2 that has train.py in it, `--packages` a folder to import its packages
(tensordict, torchrl, hydra-core, omegaconf, gymnasium 0.29, termcolor) from, if they are not installed. It needs a GPU.
Each `--ours` is a run of Lockstep with these further words. Both programs act at random for the first 2,500 steps, then
learn from as many batches, then once a step; the speed is that after `--from-step`, the first trained step the first
that follows those batches. The official program is still compiling at step 3,000: its speed needs 3,500 or more.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNNER = """
import sys
import hydra.utils
from omegaconf import OmegaConf
hydra.utils.get_original_cwd = lambda: sys.argv[2]
sys.path.insert(0, sys.argv[1])
import train
config = OmegaConf.load(sys.argv[1] + "/config.yaml")
config.pop("defaults")
train.train(OmegaConf.merge(config, OmegaConf.from_dotlist(sys.argv[3:])))
"""
"""Calls the official program's own function with its own configuration; only the launcher for clusters is left out."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
OFFICIAL_LINE = re.compile(r"train\s.*I:\s*([\d,]+)")
OUR_LINE = re.compile(r"step ([\d,]+)/")


def timeline(command, pattern, environment, folder):
    """(seconds since the start, step) for every line that tells a step, as it comes; the output goes on to stderr."""
    start, points = time.monotonic(), []
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    for line in process.stdout:
        line = COLOUR.sub("", line).rstrip()
        print("   ", line[:160], file=sys.stderr, flush=True)
        if found := pattern.search(line):
            points.append((time.monotonic() - start, int(found[1].replace(",", ""))))
    if process.wait():
        print(f"    ended with exit code {process.returncode}", file=sys.stderr)
    return points


def measured(points, from_step, seed_steps):
    """Agent steps a second after some step, and the seconds to the first line after the random ones."""
    steady = [point for point in points if point[1] >= from_step]
    trained = next((seconds for seconds, step in points if step > seed_steps), float("nan"))
    if len(steady) < 2:
        return float("nan"), trained
    (first, low), (last, high) = steady[0], steady[-1]
    return (high - low) / (last - first), trained


def official(options, folder):
    """The official program as it is, with its own choice of everything but logging and evaluation."""
    stub = folder / "stub" / "pandas"
    stub.mkdir(parents=True)
    (stub / "__init__.py").touch()  # only asked for tables of evaluations, which are turned off
    places = [options.packages, str(stub.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    path = os.pathsep.join(str(Path(place).resolve()) for place in places if place)  # it runs in another folder
    environment = {**os.environ, "PYTHONPATH": path, "MUJOCO_GL": "disabled"}
    words = [
        *(f"task={options.task}", f"steps={options.steps}", "model_size=5", "eval_episodes=1", "eval_freq=1000000000"),
        *("enable_wandb=false", "save_csv=false", "save_video=false", "save_agent=false"),
    ]
    command = [sys.executable, "-u", "-c", RUNNER, str(Path(options.official).resolve()), str(folder), *words]
    return timeline(command, OFFICIAL_LINE, environment, folder)


def ours(options, words, folder):
    """Lockstep with the preset base, and some words more."""
    fixed = [f"task={options.task}", f"steps={options.steps}", "eval_every=0", "checkpoint_every=0"]
    command = [sys.executable, "-u", "-m", "lockstep", "train", "control", *fixed, *words.split()]
    return timeline([*command, "--runs-dir", str(folder)], OUR_LINE, {**os.environ, "MUJOCO_GL": "disabled"}, None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", default="")
    parser.add_argument("--packages", default="")
    parser.add_argument("--task", default="walker-walk")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed-steps", type=int, default=2500)
    parser.add_argument("--from-step", type=int, default=3500)
    parser.add_argument("--ours", action="append", default=[])
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        if options.official:
            points = official(options, Path(folder))
            rows.append(("official program", *measured(points, options.from_step, options.seed_steps)))
        for number, words in enumerate(options.ours or [""]):
            points = ours(options, words, Path(folder) / f"runs-{number}")
            rows.append((f"Lockstep {words}".strip(), *measured(points, options.from_step, options.seed_steps)))
    print(f"\n{'':44}{'agent steps/s':>14}{'ratio':>8}{'first trained line after':>26}")
    for name, speed, seconds in rows:
        print(f"{name:44}{speed:14.1f}{speed / rows[0][1]:8.2f}{seconds:24.1f} s")


if __name__ == "__main__":
    main()
