"""Which relations of the cricket graph earn their place: each is left out, and everything trained for equal epochs.

python benchmarks/cricket_ablation.py --data MATCHES.zip --split split.json [--epochs 4] [field=value ...]

Differences in validation log loss are to the same graph with all of them trained from the same seed, paired by match;
the standard error is over matches. It is also trained from another seed (not with --only), which shows what chance
alone does. With drop_relations=ball relations are left out of the graph without earlier balls, as preset base has it.
"""

import argparse
import math
import time

import torch
from torch.nn import functional as F

from lockstep.algorithms.supervised.algorithm import Supervised
from lockstep.compute.precision import Precision
from lockstep.config.sources import resolve
from lockstep.distributed.world import World, choose_device, describe_device
from lockstep.run import arithmetic
from lockstep.workloads.cricket.config import CricketConfig
from lockstep.workloads.cricket.data.preparation import Splits, open_splits
from lockstep.workloads.cricket.data.samples import grouped
from lockstep.workloads.cricket.features.table import DeliveryTable
from lockstep.workloads.cricket.network.graph import (
    BALL_RELATIONS,
    CONTEXT_RELATIONS,
    OTHER_BALL_RELATIONS,
    PLAYER_RELATIONS,
    QUERY_RELATIONS,
    RELATIONS,
)
from lockstep.workloads.cricket.problem import problem_of
from lockstep.workloads.cricket.workload import Cricket

WHOLE = "nothing"
GROUPS = {
    "all between balls": ",".join((*BALL_RELATIONS, *OTHER_BALL_RELATIONS)),
    "all from balls to players": ",".join(PLAYER_RELATIONS),
    "all between context nodes": "conditions,relates_to,matchup",
    "all balls": "ball",
}


def train(config: CricketConfig, splits: Splits, world: World) -> tuple[torch.Tensor, float, int]:
    """The log loss of every validation sample, samples a second, and how many weights there are."""
    problem = problem_of(splits, config.workload, world, balls=config.network.reads_balls)
    learner = Supervised().build(config, world, problem)
    begin = time.perf_counter()
    while not learner.done():
        learner.step()
    world.device_barrier()
    speed = learner.steps / (time.perf_counter() - begin)
    weights = sum(parameter.numel() for parameter in learner.model.network.parameters())
    return surprises(learner.model, config, splits.validation, world), speed, weights


@torch.no_grad()
def surprises(model: torch.nn.Module, config: CricketConfig, table: DeliveryTable, world: World) -> torch.Tensor:
    """The log loss of each delivery that is a sample, 0 for the others: (N,)."""
    table = table.to(world.device)
    data = grouped(table, config.workload.history_groups, config.network.reads_balls)
    precision = Precision(config.run.precision, world.device)
    found = torch.zeros(len(table), device=world.device)
    for group, size in enumerate(data.sizes):
        for index in torch.arange(size, device=world.device).split(1024):
            with precision.autocast():
                (logits,) = model(data.inputs(group, index))
            found[data.rows(group, index)] = F.cross_entropy(
                logits.float(), data.labels(group, index), reduction="none"
            )
    return found.double().cpu()


def paired(one: torch.Tensor, other: torch.Tensor, table: DeliveryTable) -> tuple[float, float]:
    """The mean difference of two models' losses, and its standard error over matches."""
    matches = len(table.matches)
    by_match = torch.zeros(matches, dtype=torch.float64).index_add(0, table.match, one - other)
    samples = torch.bincount(table.match[table.sample], minlength=matches)
    mean = float(by_match.sum()) / table.samples
    spread = float((by_match - mean * samples).square().sum())
    return mean, math.sqrt(spread) / table.samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="")
    parser.add_argument("--split", default="")
    parser.add_argument("--cache-dir", default="")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--tiny", action="store_true", help="the preset `debug`, to try this script")
    parser.add_argument("--only", default="", help="names to leave out, instead of all; separated by /")
    parser.add_argument("fields", nargs="*", help="field=value")
    arguments = parser.parse_args()
    given = {"data": arguments.data, "split": arguments.split, "cache_dir": arguments.cache_dir}
    start = Cricket().preset("debug" if arguments.tiny else "whole").replace(drop_relations="", **given)
    start = start.replace(epochs=arguments.epochs, patience=0, log_every=200)
    start = resolve(start, overrides=arguments.fields).config
    dropped_before = start.network.drop_relations
    world = World(device=choose_device(start.run.device, 0)).with_lanes(start.effective_lanes, "fast")
    arithmetic.fix(start.run, world)
    splits = open_splits(start.workload, world)
    print(f"{describe_device(world.device)}; {splits.validation.samples:,} validation samples", flush=True)
    left_out = {name: GROUPS.get(name, name) for name in arguments.only.split("/")} if arguments.only else None
    without_balls = {name: name for name in (*CONTEXT_RELATIONS, *QUERY_RELATIONS)}
    left_out = left_out or (without_balls if dropped_before else {name: name for name in RELATIONS} | GROUPS)
    print(f"{'left out':28}{'log loss':>10}{'difference':>12}{'error':>8}{'weights':>10}{'samples/s':>11}")
    everything, speed, weights = train(start, splits, world)
    mean = float(everything.sum()) / splits.validation.samples
    print(f"{WHOLE:28}{mean:10.4f}{'':20}{weights / 1e6:9.2f}M{speed:11,.0f}", flush=True)
    other = start.run.seed + 1
    trials = {} if arguments.only else {f"{WHOLE}, seed {other}": start.replace(seed=other)}
    for name, dropped in left_out.items():
        trials[name] = start.replace(drop_relations=",".join(filter(None, (dropped_before, dropped))))
    for name, config in trials.items():
        losses, speed, weights = train(config, splits, world)
        difference, error = paired(losses, everything, splits.validation)
        print(
            f"{name:28}{mean + difference:10.4f}{difference:+12.4f}{error:8.4f}{weights / 1e6:9.2f}M{speed:11,.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
