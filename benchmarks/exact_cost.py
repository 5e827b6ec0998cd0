"""What exact costs: seconds of an update beside fast, in turns in one process, so that a busy machine slows both alike.

python benchmarks/exact_cost.py snake trading --preset small
python benchmarks/exact_cost.py cricket --preset small --turns 40 data=../shared/data/cricket/t20s_male_json.zip

On a CPU of processor time, with one thread; on a GPU of wall-clock time, and with the number of kernels. The updates
before are not counted: kernels are compiled, graphs are recorded, and the learner finds out what it may compute
together.
"""

import argparse
import statistics
import time

import torch
from torch.profiler import ProfilerActivity, profile

from lockstep.cli.short_runs import open_learner
from lockstep.config.sources import to_yaml
from lockstep.distributed.pool import RankPool
from lockstep.distributed.world import World, choose_device
from lockstep.run.learner import Learner
from lockstep.workloads import registry

MODES = ("fast", "exact")


def main() -> None:
    """A line for each workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", help="workloads, and settings as name=value")
    parser.add_argument("--preset", default="base")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--warm-up", type=int, default=4, help="updates that are not counted")
    parser.add_argument("--turns", type=int, default=3, help="counted updates of each mode, or blocks of them")
    parser.add_argument("--block", type=int, default=1, help="updates of a turn")
    options = parser.parse_intermixed_args()
    settings = dict(word.split("=", 1) for word in options.workloads if "=" in word)
    device = choose_device(options.device, 0).type
    for name in [word for word in options.workloads if "=" not in word]:
        texts = [_settings(name, options.preset, settings | {"sync": mode, "device": device}) for mode in MODES]
        with RankPool(options.ranks, device=device) as pool:
            sizes = options.warm_up, options.turns, options.block
            found, *_ = pool.run(seconds, name, texts, *sizes, ranks=options.ranks, timeout=3600)
        (fast, *of_fast), (exact, *of_exact) = found
        what = f"{name}, preset {options.preset}, {options.ranks} on {device}"
        print(f"{what}: an update takes {fast:.4g} s in fast, {exact:.4g} s in exact, {fast / exact:.0%}", flush=True)
        if device == "cuda":
            for mode, (number, spent) in zip(MODES, (of_fast, of_exact), strict=True):
                print(f"    {mode}: {number:,.0f} kernels an update, {spent:.4g} s of the device", flush=True)


def _settings(name: str, preset: str, settings: dict[str, str]) -> str:
    words = [f"{key}={value}" for key, value in settings.items()]
    return to_yaml(registry.load(name).resolve(preset, overrides=words).config)


def seconds(
    world: World, name: str, texts: list[str], warm_up: int, turns: int, block: int
) -> list[tuple[float, float, float]]:
    """For each mode the median time of an update, its kernels on a GPU and their time. Called by every rank."""
    learners = [open_learner(world, name, text) for text in texts]
    for learner in learners:
        _updates(learner, warm_up)
    took: list[list[float]] = [[] for _ in learners]
    for _ in range(turns):
        for learner, times in zip(learners, took, strict=True):
            begun = _now(world)
            _updates(learner, block)
            times.append((_now(world) - begun) / block)
    return [(statistics.median(times), *_kernels(learner)) for times, learner in zip(took, learners, strict=True)]


def _kernels(learner: Learner) -> tuple[float, float]:
    if not torch.cuda.is_available():
        return 0, 0.0
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        learner.step()
        torch.cuda.synchronize()
    events = [event for event in seen.events() if event.device_type.name == "CUDA"]
    return len(events), sum(event.device_time for event in events) / 1e6


def _updates(learner: Learner, count: int) -> None:
    for _ in range(count):
        learner.step()


def _now(world: World) -> float:
    if world.device.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
