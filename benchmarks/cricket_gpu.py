"""Cricket on a GPU: how fast it trains, and how well some settings do in equal time.

python benchmarks/cricket_gpu.py --data MATCHES.zip --split split.json speed
python benchmarks/cricket_gpu.py --data MATCHES.zip --split split.json try --minutes 2 whole wide strict

The matches are read once for all. `speed` trains for a few seconds with several numbers of history groups and batch
sizes; `try` trains each setting named (see TRIALS; also field=value,field=value) for so many minutes, one after the
other, and prints a line after every epoch and a table at the end. Where minutes end before the epochs do, the schedule
is cut short: give `epochs` what fits. With --out FOLDER the best weights' reports are written there.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from lockstep.algorithms.supervised.algorithm import Supervised
from lockstep.config.sources import resolve
from lockstep.distributed.world import World, choose_device, describe_device
from lockstep.run import arithmetic
from lockstep.run.learner import Learner
from lockstep.workloads.cricket.config import CricketConfig
from lockstep.workloads.cricket.data.preparation import Splits, open_splits
from lockstep.workloads.cricket.network.graph import BALL_RELATIONS, OTHER_BALL_RELATIONS
from lockstep.workloads.cricket.problem import problem_of
from lockstep.workloads.cricket.reports import metrics
from lockstep.workloads.cricket.workload import Cricket

TRIALS: dict[str, str] = {
    "whole": "",
    "strict": "dropout=0.3,weight_decay=0.1,id_dropout=0.5",
    "loose": "dropout=0.1,weight_decay=0.01,id_dropout=0.1",
    "wide": "hidden_dim=256,dropout=0.3",
    "narrow": "hidden_dim=64",
    "full": "model=full",
    "hybrid": "model=hybrid",
    "pair": "members=2",
    "four": "members=4,hidden_dim=64",
    "crowd": "members=8,hidden_dim=64,drop_relations=ball",
    "fp32": "precision=fp32",
    "nameless": "id_dropout=1.0",
    "context": "drop_relations=ball",
    "silent": f"drop_relations={','.join((*BALL_RELATIONS, *OTHER_BALL_RELATIONS))}",
    "weighted": "class_weights=true,class_weight_power=0.5",
}
"""Settings to compare, as changes of the preset `whole`; `context` has no balls, in `silent` they ignore each other."""


def settings(text: str, start: CricketConfig) -> CricketConfig:
    """The configuration that a name of TRIALS, or changes in the same form, stands for."""
    # Relations are separated by commas, too: a word without '=' belongs to the one before it.
    words: list[str] = []
    for word in filter(None, TRIALS.get(text, text).split(",")):
        if "=" in word:
            words.append(word)
        else:
            words[-1] += f",{word}"
    return resolve(start, overrides=words).config


def learner_of(config: CricketConfig, world: World, splits: Splits) -> Learner:
    """Supervised learning on tables that are there."""
    problem = problem_of(splits, config.workload, world, balls=config.network.reads_balls)
    return Supervised().build(config, world, problem)


def train(config: CricketConfig, splits: Splits, world: World, minutes: float) -> Iterator[dict]:
    """Train, yielding what every epoch came to."""
    learner = learner_of(config, world, splits)
    begin = start = time.perf_counter()
    seen = 0
    while not learner.done() and time.perf_counter() - begin < minutes * 60:
        reports = learner.step()
        if not learner.evaluation_due:
            continue
        world.device_barrier()
        validating = learner.timings().get("validating", 0.0)
        seconds = time.perf_counter() - start
        speed = (learner.steps - seen) / (seconds - validating)
        seen = learner.steps
        validation = learner.evaluate(config.run.eval_episodes, config.run.seed)
        yield {
            "train": reports[0]["train/loss"].mean,
            "speed": speed,
            "seconds": seconds,
            "validating": validating,
            "total": validation.total,
            **validation.measured,
        }
        start = time.perf_counter()


def compare(names: list[str], start: CricketConfig, splits: Splits, world: World, minutes: float, out: str) -> None:
    """Train one after the other; each line is one epoch, each row of the table at the end one setting's best."""
    table = []
    for name in names:
        config = settings(name, start)
        print(f"\n{name}: {TRIALS.get(name, name) or 'the preset'}", flush=True)
        best: dict = {"log_loss": float("inf")}
        for epoch, found in enumerate(train(config, splits, world, minutes), start=1):
            print(
                f"  epoch {epoch:3}  log loss {found['log_loss']:.4f}  ECE {found['ece']:.4f}  "
                f"accuracy {found['accuracy']:.4f}  macro F1 {found['macro_f1']:.4f} (shifted "
                f"{found['shifted_macro_f1']:.4f})  training batch {found['train']:.4f}  "
                f"{found['speed']:,.0f} samples/s  {found['seconds']:.1f} s",
                flush=True,
            )
            if found["log_loss"] < best["log_loss"]:
                best = found | {"epoch": epoch}
        if "total" not in best:
            print("  no epoch was finished in this time")
            continue
        table.append((name, best))
        if out:
            path = Path(out) / f"{name.replace('=', '_').replace(',', '_')[:80]}.json"
            path.write_text(json.dumps(metrics.report(best["total"]), indent=1))
    print(f"\n{'setting':28}{'log loss':>10}{'ECE':>8}{'accuracy':>10}{'macro F1':>10}{'shifted':>9}{'epoch':>7}")
    for name, best in sorted(table, key=lambda row: row[1]["log_loss"]):
        print(
            f"{name[:28]:28}{best['log_loss']:10.4f}{best['ece']:8.4f}{best['accuracy']:10.4f}{best['macro_f1']:10.4f}"
            f"{best['shifted_macro_f1']:9.4f}{best['epoch']:7}"
        )


def measure_speed(start: CricketConfig, splits: Splits, world: World, seconds: float) -> None:
    """Samples a second with several sizes, the first updates (which record the kernels) left out."""
    samples = splits.train.samples
    for groups, batch in ((6, 2048), (4, 2048), (8, 2048), (6, 4096), (6, 1024)):
        config = start.replace(history_groups=groups, batch_size=batch, log_every=10**6)
        learner = learner_of(config, world, splits)
        for _ in range(6):
            learner.step()
        world.device_barrier()
        begin, seen = time.perf_counter(), learner.steps
        while time.perf_counter() - begin < seconds and not learner.evaluation_due:
            learner.step()
        world.device_barrier()
        speed = (learner.steps - seen) / (time.perf_counter() - begin)
        memory = torch.cuda.max_memory_allocated() / 2**30 if world.device.type == "cuda" else 0.0
        print(
            f"{groups} groups, batch {batch:5}: {speed:10,.0f} samples/s, an epoch {samples / speed:7.1f} s, "
            f"{memory:.1f} GiB",
            flush=True,
        )
        del learner
        if world.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="")
    parser.add_argument("--split", default="")
    parser.add_argument("--cache-dir", default="")
    parser.add_argument("--tiny", action="store_true", help="the preset `debug`, to try this script")
    commands = parser.add_subparsers(dest="command", required=True)
    speed = commands.add_parser("speed")
    speed.add_argument("--seconds", type=float, default=8.0)
    trying = commands.add_parser("try")
    trying.add_argument("--minutes", type=float, default=2.0)
    trying.add_argument("--out", default="")
    trying.add_argument("names", nargs="+")
    arguments = parser.parse_args()
    start = Cricket().preset("debug" if arguments.tiny else "whole")
    start = start.replace(
        data=arguments.data,
        split=arguments.split,
        cache_dir=arguments.cache_dir,
        log_every=1 if arguments.tiny else 50,
    )
    world = World(device=choose_device("auto", 0)).with_lanes(start.effective_lanes, "fast")
    arithmetic.fix(start.run, world)
    begin = time.perf_counter()
    splits = open_splits(start.workload, world)
    print(
        f"{describe_device(world.device)}, torch {torch.__version__}; {splits.train.samples:,} training and "
        f"{splits.validation.samples:,} validation samples, read in {time.perf_counter() - begin:.1f} s",
        flush=True,
    )
    if arguments.command == "speed":
        measure_speed(start, splits, world, arguments.seconds)
    else:
        compare(arguments.names, start, splits, world, arguments.minutes, arguments.out)


if __name__ == "__main__":
    main()
