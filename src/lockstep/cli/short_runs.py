"""Short trainings without a run directory, for verify, bench and tests. Every rank calls these functions."""

import functools
import gc
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from lockstep.config.config import AnyConfig
from lockstep.distributed.profiling import MeasuredWorld
from lockstep.distributed.rehearsal import RehearsedWorld
from lockstep.distributed.world import World
from lockstep.reporting.metrics import Stats, reduce
from lockstep.run import arithmetic
from lockstep.run.learner import Learner
from lockstep.run.warm_start import warm_start
from lockstep.storage import checkpoint
from lockstep.storage.disk import write_durably
from lockstep.storage.tensor_file import encode
from lockstep.workloads import registry
from lockstep.workloads.capabilities import HasPeers


def open_learner(world: World, workload: str, config_text: str, *, tf32: bool = True) -> Learner:
    """Build the learner of a configuration on this rank. Called by every rank."""
    chosen = registry.load(workload)
    config = chosen.read_config(config_text)
    world = _divided(world, config)
    arithmetic.fix(config.run, world, tf32=tf32)
    learner = chosen.build(config, world)
    if config.run.load_model:
        warm_start(learner, world, config, chosen)
    return learner


def _divided(world: World, config: AnyConfig) -> World:
    return world.with_lanes(config.effective_lanes, config.sync_on(world.device.type))


def train_briefly(world: World, workload: str, config_text: str, updates: int, output: str) -> dict[str, Any]:
    """Train for some updates; rank 0 writes weights and optimiser to files. Called by every rank."""
    learner = open_learner(world, workload, config_text)
    for _ in range(updates):
        reports = learner.advance()
    return _leave(world, learner, reports, Path(output))


def walk(
    world: World, workload: str, config_text: str, stretches: int, length: int, output: str
) -> dict[str, dict[str, Any]]:
    """Train for some stretches of `length` updates, without TF32; the state before and after each is written to files.

    Returns the result of each stretch by its number; `start` in it is the path of the state before. Called by every
    rank.
    """
    learner = open_learner(world, workload, config_text, tf32=False)
    divided = _divided(world, registry.load(workload).read_config(config_text))
    answers = {}
    for number in range(stretches):
        place = Path(output) / str(number)
        start = checkpoint.save(place, learner.state(), world=divided, step=learner.steps, workload=workload, extra={})
        for _ in range(length):
            reports = learner.advance()
        answers[str(number)] = {"start": str(start), **_leave(world, learner, reports, place)}
    return answers


def redo(
    world: World, workload: str, config_text: str, starts: dict[str, str], length: int, output: str, nudge: int = 0
) -> dict[str, dict[str, Any]]:
    """Train single stretches, without TF32, each from a state that `walk` saved; `nudge` > 0 perturbs the weights.

    Returns the result of each stretch by its name in `starts`. Called by every rank.
    """
    mine = _divided(world, registry.load(workload).read_config(config_text)).lanes.mine
    answers = {}
    for name, start in starts.items():
        if world.device.type == "cuda":
            # Each learner is compiled again, because a captured CUDA graph would keep using the first one's state.
            # Without a reset torch stops compiling after some versions of the same code.
            torch.compiler.reset()
        learner = open_learner(world, workload, config_text, tf32=False)
        snapshot = checkpoint.load(Path(start), mine)
        if nudge:
            _nudge(snapshot.model, nudge)
        learner.load(snapshot)
        for _ in range(length):
            reports = learner.advance()
        answers[name] = _leave(world, learner, reports, Path(output) / name)
    return answers


def _nudge(model: dict[str, Tensor], number: int) -> None:
    """Scale every weight by 1 ± 2^-16, with random signs that are the same on every rank."""
    generator = torch.Generator().manual_seed(number)
    for value in model.values():
        if value.is_floating_point():
            value *= 1 + 2.0**-16 * (2 * torch.randint(0, 2, value.shape, generator=generator) - 1)


def _leave(world: World, learner: Learner, reports: list[Stats], output: Path) -> dict[str, Any]:
    """The result of a short training; rank 0 writes weights and optimiser to files. Called by every rank."""
    snapshot = learner.state()
    fingerprint = checkpoint.weights_hash(snapshot.model)
    world.check_replicas(fingerprint, f"update {learner.updates}")
    metrics = {tag: stat.mean for tag, stat in reduce(reports, world).items() if stat.count}
    metrics |= _counters(snapshot.state, "state")

    def write() -> None:
        output.mkdir(parents=True, exist_ok=True)
        write_durably(output / "model.safetensors", encode(snapshot.model))
        write_durably(output / "optimizer.safetensors", encode(snapshot.optimizer))

    world.led(write)
    return {"sha256": fingerprint, "metrics": metrics}


def _counters(state: Any, name: str) -> dict[str, float]:
    """All numbers in a learner's state, by their path in it."""
    if isinstance(state, dict | list):
        items = state.items() if isinstance(state, dict) else enumerate(state)
        return {tag: value for key, part in items for tag, value in _counters(part, f"{name}/{key}").items()}
    return {name: float(state)} if isinstance(state, int | float) else {}


def time_updates(world: World, workload: str, config_text: str, updates: int) -> dict[str, float]:
    """Continue training for some updates; returns their steps over all ranks and seconds. Called by every rank."""
    learner = standing_learner(world, workload, config_text)
    return _timed(world, learner, updates)


def _timed(world: World, learner: Learner, updates: int) -> dict[str, float]:
    before = learner.steps
    world.barrier("start of a measurement")
    start = time.perf_counter()
    for _ in range(updates):
        learner.advance()
    # Kernels run asynchronously: without this, only their launches would be timed.
    world.device_barrier()
    return {"steps": learner.steps - before, "seconds": time.perf_counter() - start}


def time_anew(world: World, workload: str, config_text: str, warm_ups: int, seconds: float) -> dict[str, float]:
    """Like `time_updates`, for about so many seconds, with a learner that is dropped afterwards. Called by every rank.

    warm_ups: updates before the measurement, at least one; if the last takes longer than `seconds`, it is the result.
    """
    if world.device.type == "cuda":
        # As in `redo`: another learner must not use graphs that were captured for the one before.
        torch.compiler.reset()
    learner = open_learner(world, workload, config_text)
    for _ in range(warm_ups):
        measured = _timed(world, learner, 1)
    # Rank 0 decides, so that all ranks make the same number of updates.
    if updates := world.from_leader(int(seconds / measured["seconds"])):
        measured = _timed(world, learner, updates)
    del learner
    gc.collect()
    if world.device.type == "cuda":
        # The next sizes are tried with all of the memory.
        torch.cuda.empty_cache()
    return measured


@functools.cache
def standing_learner(world: World, workload: str, config_text: str) -> Learner:
    """The learner of a configuration, built once and kept between measurements. Called by every rank."""
    return open_learner(world, workload, config_text)


def time_rehearsal(world: World, workload: str, config_text: str, ranks: int, updates: int) -> dict[str, Any]:
    """Like `time_updates`, on one rank that computes rank 0's share of `ranks`; exchanges are counted, not made."""
    rehearsed, learner = _standing_rehearsal(world, workload, config_text, ranks)
    rehearsed.tally.take()  # discard what earlier measurements counted
    before = learner.steps
    start = time.perf_counter()
    for _ in range(updates):
        learner.advance()
    world.device_barrier()
    seconds = time.perf_counter() - start
    return {"steps": learner.steps - before, "seconds": seconds, "exchanges": rehearsed.tally.take()}


@functools.cache
def _standing_rehearsal(world: World, workload: str, config_text: str, ranks: int) -> tuple[RehearsedWorld, Learner]:
    rehearsed = RehearsedWorld.of(world, ranks)
    # Dividing the lanes creates another world object, which shares this one's tally.
    return rehearsed, open_learner(rehearsed, workload, config_text)


def time_peer(world: World, workload: str, config_text: str, peer: str, updates: int) -> dict[str, float]:
    """Like `time_updates`, with another program on one rank."""
    chosen = registry.load(workload)
    config = chosen.read_config(config_text)
    start = time.perf_counter()
    steps = registry.require(chosen, HasPeers).run_peer(peer, config, updates, world.device.type)
    world.device_barrier()
    return {"steps": steps, "seconds": time.perf_counter() - start}


def profile_updates(world: World, workload: str, config_text: str, updates: int) -> dict[str, Any]:
    """Train for some updates; returns their steps over all ranks, and this rank's seconds by part.

    Called by every rank.
    """
    measured = MeasuredWorld.of(world)
    learner = open_learner(measured, workload, config_text)
    # The first update compiles and allocates; its times are discarded.
    learner.advance()
    learner.timings(), measured.watch.take()
    before, gradients_before = learner.steps, learner.gradient_updates
    world.barrier("start of a measurement")
    start = time.perf_counter()
    for _ in range(updates):
        learner.advance()
    world.device_barrier()
    seconds = time.perf_counter() - start
    parts = {"idle": 0.0, "sync": 0.0, "learning": 0.0} | measured.watch.take() | learner.timings()
    # Ranks exchange gradients inside the learning phase, so its timer includes the waiting; count that only once.
    parts["learning"] = max(0.0, parts["learning"] - parts["idle"] - parts["sync"])
    gradients = learner.gradient_updates - gradients_before
    return {"steps": learner.steps - before, "seconds": seconds, "parts": parts, "gradient_updates": gradients}


def count_operations(world: World, workload: str, config_text: str) -> dict[str, float]:
    """Floating-point operations of this rank's networks in one update, and the update's steps. Called by every rank."""
    learner = open_learner(world, workload, config_text)
    with FlopCounterMode(display=False) as counter:
        learner.advance()
    return {"steps": learner.steps, "operations": counter.get_total_flops()}


def matmul_speed(world: World) -> float:
    """Floating-point operations a second of a large matrix product, on all ranks at once. Called by every rank."""
    on_gpu = world.device.type == "cuda"
    # Large enough to reach the device's peak, in the precision that it is fastest in for training.
    side, dtype = (8192, torch.bfloat16) if on_gpu else (1024, torch.float32)
    one, other = (torch.ones(side, side, dtype=dtype, device=world.device) for _ in range(2))
    best = float("inf")
    world.barrier("start of a measurement")
    for _ in range(8):
        start = time.perf_counter()
        torch.mm(one, other)
        world.device_barrier()
        best = min(best, time.perf_counter() - start)
    # The best of eight: anything slower was disturbed. A product of n x n matrices takes 2 n^3 operations.
    return 2 * side**3 / best
