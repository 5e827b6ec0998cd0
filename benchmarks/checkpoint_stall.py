"""How long training stands still for a checkpoint: written beside it, against waiting for the disk.

python benchmarks/checkpoint_stall.py [WORKLOAD [PRESET]]
"""

import statistics
import sys
import tempfile
import time
from dataclasses import replace

from lockstep.core.config.sources import to_yaml
from lockstep.core.distributed.world import World, choose_device
from lockstep.core.storage import checkpoint
from lockstep.core.storage.scribe import Order, Scribe
from lockstep.core.storage.tensor_file import stored_size
from lockstep.verbs.trial import open_learner
from lockstep.workloads import registry

SAVES = 8
INTERVAL = 30.0


def main() -> None:
    """Train a little between checkpoints, saved in both ways in turn, and print what each cost."""
    workload = sys.argv[1] if len(sys.argv) > 1 else "snake"
    preset = sys.argv[2] if len(sys.argv) > 2 else "base"
    config = replace(registry.load(workload).preset(preset), compile="none", wandb=False)
    world = World(device=choose_device("auto", 0)).with_lanes(config.effective_lanes, config.sync)
    learner = open_learner(world, workload, to_yaml(config))
    learner.step()
    seconds: dict[str, list[float]] = {"waiting": [], "beside": [], "alone": [], "update beside a save": []}
    with tempfile.TemporaryDirectory() as folder:
        scribe = Scribe(folder, world, workload, keep=2, written=lambda order: None, say=print)
        for number in range(SAVES):
            snapshot = learner.state()
            size = sum(map(stored_size, [snapshot.model, snapshot.optimizer, *snapshot.lanes.values()]))
            with timed(seconds["waiting"]):
                snapshot = learner.state()
                checkpoint.save(folder, snapshot, world=world, step=2 * number, workload=workload, extra={})
                checkpoint.prune(folder, 2, set())
            with timed(seconds["alone"]):
                learner.step()
            with timed(seconds["beside"]):
                scribe.save(Order(learner.state(), 2 * number + 1, {}))
            with timed(seconds["update beside a save"]):
                learner.step()
            scribe.settle()
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    slower = max(0.0, middle["update beside a save"] - middle["alone"])
    print(f"{workload} {preset} on {world.device}: a checkpoint of {size / 1e6:.1f} MB, medians of {SAVES}")
    print(f"  waiting for the disk: {middle['waiting'] * 1e3:.1f} ms, {middle['waiting'] / INTERVAL:.2%} of 30 s")
    print(
        f"  written beside:       {middle['beside'] * 1e3:.1f} ms, and the update beside it took {slower * 1e3:.1f} ms"
    )
    print(f"                        longer: together {(middle['beside'] + slower) / INTERVAL:.2%} of 30 s")


class timed:  # noqa: N801
    """Adds the seconds spent inside to a list."""

    def __init__(self, seconds: list[float]) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self._seconds.append(time.perf_counter() - self._start)


if __name__ == "__main__":
    main()
