"""Returns of TD-MPC2 on several numbers of ranks at the same global batch and updates a step, from the same seeds.

python benchmarks/control_ranks.py [--ranks 1,2,4] [--seeds 1,2] [--preset small] [--steps 8000]
    [--folder runs/ranks] [field=value]...

One training after the other, in fast mode: the ranks add in another order, so runs of one seed part in the last bits
and then go ways of their own, as runs of other seeds do. The table shows how far apart either takes them. Trainings
that are finished in the folder are not made again, others go on.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path


def train(ranks, seed, options, more):
    """{agent steps: mean return} of one training."""
    name = f"ranks{ranks}-seed{seed}"
    run = Path(options.folder) / name
    if not (run / "final").exists():
        words = [f"seed={seed}", f"steps={options.steps}", "eval_every=1000", "eval_episodes=10", *more]
        place = ["--runs-dir", options.folder, "--run-name", name]
        command = [sys.executable, "-m", "lockstep", "train", "control", "--preset", options.preset, *words]
        subprocess.run([*command, "--ranks", str(ranks), *place], check=True, stdout=sys.stderr)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["eval/return_mean"] for line in lines if "eval/return_mean" in line}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--steps", type=int, default=8_000)
    parser.add_argument("--folder", default="runs/ranks")
    options, more = parser.parse_known_args()
    found = {}
    for seed in options.seeds.split(","):
        for ranks in options.ranks.split(","):
            found[ranks, seed] = curve = train(ranks, seed, options, more)
            print(f"ranks {ranks}, seed {seed}: {' '.join(f'{value:.0f}' for value in curve.values())}", flush=True)
    columns = sorted({step for curve in found.values() for step in curve})
    print(f"\n{'ranks, seed':14}" + "".join(f"{step:>9,}" for step in columns))
    for (ranks, seed), curve in found.items():
        row = "".join(f"{curve[step]:9.1f}" if step in curve else f"{'':9}" for step in columns)
        print(f"{f'{ranks}, {seed}':14}{row}")


if __name__ == "__main__":
    main()
