"""What checkpoints cost: the speed with one every so many seconds against the speed without, in turns of one process.

python benchmarks/checkpoint_stall.py [WORKLOAD ...] [--every 30] [--turns 4] [--preset base] [--ranks 1] [--device cpu]

A turn is four stretches of `--every` seconds: with a checkpoint, without, without, with. Together they are one figure,
which neither a drift of the machine nor a warming cache moves.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed.pool import RankPool
from lockstep.distributed.world import World
from lockstep.run.learner import Learner
from lockstep.storage.async_checkpointer import AsyncCheckpointer, SaveRequest
from lockstep.storage.checkpoint import weights_hash
from lockstep.storage.tensor_file import stored_size
from lockstep.workloads import registry

PATTERN = (True, False, False, True)
TARGET = 0.02


def measure(world: World, workload: str, config_text: str, folder: str, every: float, turns: int) -> dict:
    """Speeds with and without checkpoints, each turn, by the wall clock and by processor time. Called by every rank."""
    config = registry.load(workload).read_config(config_text)
    world = world.with_lanes(config.effective_lanes, config.sync_on(world.device.type))
    learner = open_learner(world, workload, config_text)
    scribe = AsyncCheckpointer(Path(folder), world, workload, keep=2, written=lambda order: None, say=print)
    stretch(world, learner, scribe, 0.0, [])
    stalls: list[float] = []
    pairs = []
    for _ in range(turns):
        sums = {True: [0.0, 0.0, 0.0], False: [0.0, 0.0, 0.0]}
        for saves in PATTERN:
            for index, value in enumerate(stretch(world, learner, scribe if saves else None, every, stalls)):
                sums[saves][index] += value
        pairs.append([sums[saves][0] / sums[saves][clock] for clock in (1, 2) for saves in (True, False)])
    state = learner.state()
    size = sum(map(stored_size, [state.model, state.optimizer, *state.lanes.values()]))
    return {"pairs": pairs, "stalls": stalls, "megabytes": size / 1e6}


def stretch(
    world: World, learner: Learner, scribe: AsyncCheckpointer | None, least: float, stalls: list[float]
) -> tuple[float, float, float]:
    """Train for so many seconds, at least one update; returns steps, seconds and seconds of processor time."""
    world.device_barrier()
    before, start, busy = learner.steps, time.perf_counter(), time.process_time()
    if scribe is not None:
        # What the training loop does when a checkpoint is due.
        world.check_replicas(weights_hash(dict(learner.model.state_dict())), "a checkpoint")
        scribe.save(SaveRequest(learner.state(), learner.steps, {}))
        stalls.append(time.perf_counter() - start)
    late = 0
    while not late:
        learner.step()
        late = world.agree(int(time.perf_counter() - start >= least))
    if scribe is not None:
        # A write that takes longer than the stretch is waited for, as the next checkpoint would.
        scribe.settle()
    world.device_barrier()
    return learner.steps - before, time.perf_counter() - start, time.process_time() - busy


def report(workload: str, given: argparse.Namespace, result: dict) -> bool:
    """Print what was measured; whether it is below the target."""
    costs = [1 - with_them / without for with_them, without, _, _ in result["pairs"]]
    speeds = [statistics.mean(column) for column in zip(*result["pairs"], strict=True)]
    total, busy = 1 - speeds[0] / speeds[1], 1 - speeds[2] / speeds[3]
    print(
        f"{workload} {given.preset}, {given.ranks} rank(s), device {given.device}: a checkpoint of "
        f"{result['megabytes']:.1f} MB every {given.every:g} s costs {total:.2%} of the speed "
        f"({speeds[0]:,.0f} steps/s against {speeds[1]:,.0f}; "
        f"each turn {', '.join(f'{cost:.2%}' for cost in costs)}), {busy:.2%} by processor time; it stands still for "
        f"{1e3 * statistics.median(result['stalls']):.1f} ms (median)",
        flush=True,
    )
    return total < TARGET


def main() -> int:
    """Measure; 0 where all of it is below the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=["snake", "trading"])
    parser.add_argument("--preset", default="base")
    parser.add_argument("--every", type=float, default=30.0)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    good = True
    for workload in given.workloads:
        config = registry.load(workload).preset(given.preset).replace(wandb=False, device=given.device)
        patience = 600 + 8 * given.every * given.turns
        with RankPool(given.ranks, given.device) as pool, tempfile.TemporaryDirectory() as folder:
            words = workload, to_yaml(config), folder, given.every, given.turns
            result = pool.run(measure, *words, timeout=patience)[0]
        good &= report(workload, given, result)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
