"""Short trainings without a run directory, for verify, bench and tests. Its functions are called on every rank."""

import functools
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from lockstep.core.config.sources import from_yaml
from lockstep.core.distributed.profiling import MeasuredWorld
from lockstep.core.distributed.rehearsal import RehearsedWorld
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


def time_updates(world: World, workload: str, config_text: str, updates: int) -> dict[str, float]:
    """Train on for some updates; returns their steps over all ranks and seconds. Called by every rank."""
    learner = standing_learner(world, workload, config_text)
    before = learner.steps
    world.barrier("start of a measurement")
    start = time.perf_counter()
    for _ in range(updates):
        learner.step()
    world.device_barrier()
    return {"steps": learner.steps - before, "seconds": time.perf_counter() - start}


@functools.cache
def standing_learner(world: World, workload: str, config_text: str) -> Learner:
    """The learner of a configuration, made once and then trained on. Called by every rank."""
    return open_learner(world, workload, config_text)


def time_rehearsal(world: World, workload: str, config_text: str, ranks: int, updates: int) -> dict[str, Any]:
    """As `time_updates`, by one rank that does the part of rank 0 of `ranks`; its exchanges are counted, not made."""
    rehearsed, learner = _standing_rehearsal(world, workload, config_text, ranks)
    rehearsed.tally.take()
    before = learner.steps
    start = time.perf_counter()
    for _ in range(updates):
        learner.step()
    world.device_barrier()
    seconds = time.perf_counter() - start
    return {"steps": learner.steps - before, "seconds": seconds, "exchanges": rehearsed.tally.take()}


@functools.cache
def _standing_rehearsal(world: World, workload: str, config_text: str, ranks: int) -> tuple[RehearsedWorld, Learner]:
    rehearsed = RehearsedWorld.of(world, ranks)
    # Dealing out the lanes makes another world, with the same tally.
    return rehearsed, open_learner(rehearsed, workload, config_text)


def time_peer(world: World, workload: str, config_text: str, peer: str, updates: int) -> dict[str, float]:
    """As `time_updates`, by another program on one rank."""
    chosen = registry.load(workload)
    config = from_yaml(config_text, chosen.config_class)
    start = time.perf_counter()
    steps = chosen.offer("run_peer")(peer, config, updates, world.device.type)
    world.device_barrier()
    return {"steps": steps, "seconds": time.perf_counter() - start}


def profile_updates(world: World, workload: str, config_text: str, updates: int) -> dict[str, Any]:
    """Train for some updates; returns their steps over all ranks, and where this rank's seconds went.

    Called by every rank.
    """
    measured = MeasuredWorld.of(world)
    learner = open_learner(measured, workload, config_text)
    learner.step()
    learner.timings(), measured.watch.take()
    before, gradients_before = learner.steps, _gradient_updates(learner)
    world.barrier("start of a measurement")
    start = time.perf_counter()
    for _ in range(updates):
        learner.step()
    world.device_barrier()
    seconds = time.perf_counter() - start
    parts = {"idle": 0.0, "sync": 0.0, "learning": 0.0} | measured.watch.take() | learner.timings()
    # Ranks meet while they learn.
    parts["learning"] = max(0.0, parts["learning"] - parts["idle"] - parts["sync"])
    gradients = _gradient_updates(learner) - gradients_before
    return {"steps": learner.steps - before, "seconds": seconds, "parts": parts, "gradient_updates": gradients}


def _gradient_updates(learner: Learner) -> int:
    """Gradient updates so far, where a learner whose rounds hold many of them counts them."""
    return getattr(learner, "gradient_updates", 0)


def count_operations(world: World, workload: str, config_text: str) -> dict[str, float]:
    """Floating-point operations of this rank's networks in one update, and its steps. Called by every rank."""
    learner = open_learner(world, workload, config_text)
    with FlopCounterMode(display=False) as counter:
        learner.step()
    return {"steps": learner.steps, "operations": counter.get_total_flops()}


def matmul_speed(world: World) -> float:
    """Floating-point operations a second of a large matrix product, on all ranks at once. Called by every rank."""
    on_gpu = world.device.type == "cuda"
    side, dtype = (8192, torch.bfloat16) if on_gpu else (1024, torch.float32)
    one, other = (torch.ones(side, side, dtype=dtype, device=world.device) for _ in range(2))
    best = float("inf")
    world.barrier("start of a measurement")
    for _ in range(8):
        start = time.perf_counter()
        torch.mm(one, other)
        world.device_barrier()
        best = min(best, time.perf_counter() - start)
    return 2 * side**3 / best
