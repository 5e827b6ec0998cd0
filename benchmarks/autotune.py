"""What --autotune chooses on this machine, beside the preset by hand: speed, and the return at equal steps.

python benchmarks/autotune.py snake trading --preset base
python benchmarks/autotune.py trading --preset small --rounds 0 --learn 200000 --seeds 42,43,44

Both take turns, --rounds each, so that a busy machine slows both alike; where --autotune keeps the sizes of the preset
there is nothing to compare. With --learn N every size that it may choose, the preset's first, also trains for N steps
with each seed, and its last evaluations are printed: which one is the fastest depends on the machine.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

import lockstep
from lockstep.config.config import AnyConfig
from lockstep.config.sources import to_yaml
from lockstep.distributed.pool import RankPool
from lockstep.distributed.world import choose_device
from lockstep.run import autotune
from lockstep.workloads import registry

TIME_ANEW = "lockstep.cli.short_runs:time_anew"


def main() -> None:
    """Print a few lines for each workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--preset", default="base")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each; 0 = none, only --learn")
    parser.add_argument("--learn", type=int, default=0, help="steps to train every size for; 0 = measure speed only")
    parser.add_argument("--seeds", default="42", help="of these trainings, separated by commas")
    options = parser.parse_args()
    for name in options.workloads:
        alternatives = registry.load(name).resolve(options.preset, overrides=["--autotune"]).alternatives
        if options.rounds:
            _compare_speed(name, alternatives, options)
        if options.learn:
            for seed in map(int, options.seeds.split(",")):
                for config in alternatives:
                    print(f"  {name}, seed {seed}: {_learned(name, options, config, seed)}", flush=True)


def _compare_speed(name: str, alternatives: Sequence[AnyConfig], options: argparse.Namespace) -> None:
    start = time.perf_counter()
    chosen, lines = autotune.tuned(alternatives, options.ranks, TIME_ANEW, name)
    print("\n".join([f"{name}, preset {options.preset}: {time.perf_counter() - start:.0f} s", *lines]), flush=True)
    both = {"by hand": alternatives[0].replace(autotune=False), "autotune": chosen}
    if chosen == both["by hand"]:
        print(f"  {name}: autotune keeps the sizes of the preset", flush=True)
        return
    speeds = _speeds(name, both, options)
    ratio = speeds["autotune"] / speeds["by hand"]
    print(
        f"  {name}: by hand {speeds['by hand']:,.0f} steps/s, autotune {speeds['autotune']:,.0f}: {ratio:.2f} times",
        flush=True,
    )


def _speeds(name: str, both: dict[str, AnyConfig], options: argparse.Namespace) -> dict[str, float]:
    device = choose_device("auto", 0).type
    warm_ups = 3 if device == "cuda" else 1
    found: dict[str, list[float]] = {label: [] for label in both}
    with RankPool(options.ranks, device) as pool:
        for _ in range(options.rounds):
            for label, config in both.items():
                text = to_yaml(config.for_world(options.ranks).replace(device=device))
                done = pool.run(TIME_ANEW, name, text, warm_ups, options.seconds, timeout=600.0)
                found[label].append(done[0]["steps"] / max(rank["seconds"] for rank in done))
    return {label: statistics.median(speeds) for label, speeds in found.items()}


def _learned(name: str, options: argparse.Namespace, config: AnyConfig, seed: int) -> str:
    """The sizes, and the returns of the last three evaluations after so many steps."""
    settings = config.values()
    sizes = {key: settings[key] for key in ("n_envs", "n_steps")}
    shown = ", ".join(f"{key} {value}" for key, value in sizes.items())
    given = sizes | {"seed": seed, "total_timesteps": options.learn, "eval_every": max(1, options.learn // 5)}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run = lockstep.train(name, preset=options.preset, ranks=options.ranks, runs_dir=folder, quiet=True, **given)
        returns = [point["eval/return_mean"] for point in run.metrics() if "eval/return_mean" in point]
    last = ", ".join(f"{value:.2f}" for value in returns[-3:])
    return f"{shown}: {last} after {options.learn:,} steps, {time.perf_counter() - start:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
