"""Short trainings without a run directory, for verify, bench and tests. Its functions are called on every rank."""

from pathlib import Path
from typing import Any

from lockstep.core.config.sources import from_yaml
from lockstep.core.distributed.world import World
from lockstep.core.learner import Learner
from lockstep.core.reporting.metrics import reduce
from lockstep.core.session import fix_arithmetic
from lockstep.core.storage import checkpoint
from lockstep.core.storage.disk import write_durably
from lockstep.core.storage.tensor_file import encode
from lockstep.workloads import registry


def open_learner(world: World, workload: str, config_text: str) -> Learner:
    """The learner of a configuration on this rank. Called by every rank."""
    chosen = registry.load(workload)
    config = from_yaml(config_text, chosen.config_class)
    world = world.with_lanes(config.effective_lanes, config.sync)
    fix_arithmetic(config, world)
    return chosen.build(config, world)


def train_briefly(world: World, workload: str, config_text: str, updates: int, output: str) -> dict[str, Any]:
    """Train for some updates; rank 0 leaves weights and optimiser in files. Called by every rank."""
    learner = open_learner(world, workload, config_text)
    for _ in range(updates):
        reports = learner.step()
    snapshot = learner.state()
    fingerprint = checkpoint.weights_hash(snapshot.model)
    world.check_replicas(fingerprint, f"update {updates}")
    metrics = {tag: stat.mean for tag, stat in reduce(reports, world).items() if stat.count}
    if world.leads:
        write_durably(Path(output) / "model.safetensors", encode(snapshot.model))
        write_durably(Path(output) / "optimizer.safetensors", encode(snapshot.optimizer))
    return {"sha256": fingerprint, "metrics": metrics}
