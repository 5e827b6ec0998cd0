"""Short trainings without a run directory, for verify, bench and tests. Its functions are called on every rank."""

import functools
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from lockstep.config.run_config import RunConfig
from lockstep.config.sources import from_yaml
from lockstep.distributed.profiling import MeasuredWorld
from lockstep.distributed.rehearsal import RehearsedWorld
from lockstep.distributed.world import World
from lockstep.reporting.metrics import Stats, reduce
from lockstep.run.learner import Learner
from lockstep.run.session import fix_arithmetic
from lockstep.storage import checkpoint
from lockstep.storage.disk import write_durably
from lockstep.storage.tensor_file import encode
from lockstep.workloads import registry


def open_learner(world: World, workload: str, config_text: str, *, tf32: bool = True) -> Learner:
    """The learner of a configuration on this rank. Called by every rank."""
    chosen = registry.load(workload)
    config = from_yaml(config_text, chosen.config_class)
    world = _divided(world, config)
    fix_arithmetic(config, world, tf32=tf32)
    return chosen.build(config, world)


def _divided(world: World, config: RunConfig) -> World:
    return world.with_lanes(config.effective_lanes, config.sync)


def train_briefly(world: World, workload: str, config_text: str, updates: int, output: str) -> dict[str, Any]:
    """Train for some updates; rank 0 leaves weights and optimiser in files. Called by every rank."""
    learner = open_learner(world, workload, config_text)
    for _ in range(updates):
        reports = learner.step()
    return _leave(world, learner, reports, Path(output))


def walk(
    world: World, workload: str, config_text: str, stretches: int, length: int, output: str
) -> dict[str, dict[str, Any]]:
    """Train for some stretches of `length` updates, without TF32; the state before and after each is left in files.

    Returns by their numbers what each came to, and as `start` where the state before it lies. Called by every rank.
    """
    learner = open_learner(world, workload, config_text, tf32=False)
    divided = _divided(world, from_yaml(config_text, registry.load(workload).config_class))
    answers = {}
    for number in range(stretches):
        place = Path(output) / str(number)
        start = checkpoint.save(place, learner.state(), world=divided, step=learner.steps, workload=workload, extra={})
        for _ in range(length):
            reports = learner.step()
        answers[str(number)] = {"start": str(start), **_leave(world, learner, reports, place)}
    return answers


def redo(
    world: World, workload: str, config_text: str, starts: dict[str, str], length: int, output: str, nudge: int = 0
) -> dict[str, dict[str, Any]]:
    """Train single stretches, without TF32, each from a state that `walk` has left, nudged if asked.

    Returns by its name in `starts` what each came to. Called by every rank.
    """
    mine = _divided(world, from_yaml(config_text, registry.load(workload).config_class)).lanes.mine
    answers = {}
    for name, start in starts.items():
        if world.device.type == "cuda":
            # Each learner is compiled anew, since a recorded graph would not notice a second state; torch gives up
            # compiling after some versions of the same code.
            torch.compiler.reset()
        learner = open_learner(world, workload, config_text, tf32=False)
        snapshot = checkpoint.load(Path(start), mine)
        if nudge:
            _nudge(snapshot.model, nudge)
        learner.load(snapshot)
        for _ in range(length):
            reports = learner.step()
        answers[name] = _leave(world, learner, reports, Path(output) / name)
    return answers


def _nudge(model: dict[str, Tensor], number: int) -> None:
    """Move every weight by one part in 65,536, up or down; the same on every rank."""
    generator = torch.Generator().manual_seed(number)
    for value in model.values():
        if value.is_floating_point():
            value *= 1 + 2.0**-16 * (2 * torch.randint(0, 2, value.shape, generator=generator) - 1)


def _leave(world: World, learner: Learner, reports: list[Stats], output: Path) -> dict[str, Any]:
    """What a short training came to; rank 0 leaves weights and optimiser in files. Called by every rank."""
    snapshot = learner.state()
    fingerprint = checkpoint.weights_hash(snapshot.model)
    world.check_replicas(fingerprint, f"update {learner.updates}")
    metrics = {tag: stat.mean for tag, stat in reduce(reports, world).items() if stat.count}
    metrics |= _counters(snapshot.state, "state")
    if world.leads:
        output.mkdir(parents=True, exist_ok=True)
        write_durably(output / "model.safetensors", encode(snapshot.model))
        write_durably(output / "optimizer.safetensors", encode(snapshot.optimizer))
    return {"sha256": fingerprint, "metrics": metrics}


def _counters(state: Any, name: str) -> dict[str, float]:
    """All numbers of a learner's state, by where they stand in it."""
    if isinstance(state, dict | list):
        items = state.items() if isinstance(state, dict) else enumerate(state)
        return {tag: value for key, part in items for tag, value in _counters(part, f"{name}/{key}").items()}
    return {name: float(state)} if isinstance(state, int | float) else {}


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
