"""Sizes for the device: a table by GPU memory or CPU cores, adjusted so that lanes and batches divide evenly."""

from collections.abc import Callable, Collection
from itertools import chain
from typing import Any, NamedTuple

from lockstep.algorithms.ppo.settings import batch_sizes
from lockstep.compute.machine import Machine
from lockstep.config.run_settings import automatic_lanes
from lockstep.errors import UserError
from lockstep.workloads.snake.settings import SnakeConfig


class Change(NamedTuple):
    """One field that was chosen, for the plan to print."""

    field: str
    old: int
    new: int
    reason: str


class _Sizes(NamedTuple):
    """One cell of the table: at most `batch_size` samples a batch, and at least `batches` batches an update."""

    n_envs: int
    n_steps: int
    batch_size: int
    batches: int
    policy_width: int
    policy_depth: int


# (least GB of GPU memory, usual sizes, sizes that fill the device); the guide's table.
_GPU_TABLE = (
    (80, _Sizes(192, 512, 4096, 4, 128, 2), _Sizes(256, 1024, 8192, 2, 128, 3)),
    (40, _Sizes(96, 256, 2048, 4, 32, 2), _Sizes(128, 256, 4096, 2, 128, 3)),
    (24, _Sizes(64, 256, 2048, 4, 32, 2), _Sizes(96, 256, 4096, 2, 64, 3)),
    (16, _Sizes(48, 256, 2048, 4, 32, 2), _Sizes(64, 256, 4096, 2, 32, 3)),
    (8, _Sizes(24, 256, 2048, 4, 32, 2), _Sizes(32, 256, 4096, 2, 32, 3)),
    (0, _Sizes(16, 256, 2048, 4, 32, 2), _Sizes(16, 256, 4096, 2, 32, 3)),
)


def autoscale(config: SnakeConfig, device: Machine, explicit: Collection[str]) -> tuple[SnakeConfig, list[Change]]:
    """Choose sizes that suit the device; also returns the changes. Fields in `explicit` are not changed.

    The result has auto_scale off: it holds the sizes in force, and scaling it again changes nothing.
    """
    if not (config.workload.auto_scale or config.workload.max_utilization):
        return config, []
    wanted, reason = _table(device, config.workload.max_utilization)
    before = config.values()
    # Only settings that exist: a network other than the CNN has no policy_width.
    chosen = {name: size for name, size in _fit(config, wanted, explicit).items() if name in before}
    changes = [Change(name, before[name], value, reason) for name, value in chosen.items() if value != before[name]]
    off: dict[str, Any] = {"auto_scale": False, "max_utilization": False, "max_n_envs": 0, "max_batch_size": 0}
    return config.replace(**chosen, **off), changes


def _table(device: Machine, fill: bool) -> tuple[_Sizes, str]:
    """The sizes for a device, and a description of the table row they come from."""
    how = ", filled" if fill else ""
    if device.memory_gb <= 0:
        n_envs = min(2 * device.logical_cores, 256) if fill else min(device.physical_cores, 16)
        cores = f"{device.physical_cores} cores, {device.logical_cores} threads"
        return _Sizes(max(n_envs, 1), 256, 1024, 4, 32, 2), f"{device.name} without a GPU, {cores}{how}"
    floor, usual, filled = next(row for row in _GPU_TABLE if device.memory_gb >= row[0])
    at_least = f"{floor} GB or more" if floor else "less than 8 GB"
    return filled if fill else usual, f"{device.name} with {device.memory_gb:.0f} GB ({at_least}{how})"


def _fit(config: SnakeConfig, wanted: _Sizes, explicit: Collection[str]) -> dict[str, Any]:
    """The table's size for every field that was not given, adjusted so that lanes and batches divide evenly."""
    n_envs, n_steps = config.algorithm.n_envs, config.algorithm.n_steps
    batch_size = config.algorithm.batch_size if "batch_size" in explicit else 0
    if "n_steps" not in explicit:
        n_steps = wanted.n_steps
        # Only one of the two is adjusted to fit: the steps if the environments were given, else the environments.
        if "n_envs" in explicit:
            n_steps = _nearest("n_steps", n_steps, 65_536, lambda steps: _is_even(config, n_envs, steps, batch_size))
    if "n_envs" not in explicit:
        limit = config.workload.max_n_envs or 65_536
        target = min(wanted.n_envs, limit)
        n_envs = _nearest("n_envs", target, limit, lambda count: _is_even(config, count, n_steps, batch_size))
    chosen = {
        "n_envs": n_envs,
        "n_steps": n_steps,
        "batch_size": batch_size or _batch(config, wanted, n_envs, n_steps),
        "policy_width": wanted.policy_width,
        "policy_depth": wanted.policy_depth,
    }
    return {name: size for name, size in chosen.items() if name not in explicit}


def _is_even(config: SnakeConfig, n_envs: int, n_steps: int, batch_size: int) -> bool:
    """Whether lanes divide the environments, lanes and parts divide a batch (0 = any), and batches the rollout."""
    lanes = config.run.lanes or automatic_lanes(n_envs)
    unit = lanes * config.algorithm.grad_accum
    batch_size = batch_size or unit
    return n_envs % lanes == 0 and batch_size % unit == 0 and n_envs * n_steps % batch_size == 0


def _nearest(name: str, target: int, limit: int, fits: Callable[[int], bool]) -> int:
    """The largest fitting size up to the target, else the smallest above it up to the limit."""
    for size in chain(range(target, 0, -1), range(target + 1, limit + 1)):
        if fits(size):
            return size
    raise UserError(f"auto_scale: no {name} up to {limit} fits lanes and batch size; change those or set {name}")


def _batch(config: SnakeConfig, wanted: _Sizes, n_envs: int, n_steps: int) -> int:
    """The largest fitting batch within the table's and the user's limits, else the smallest that fits."""
    limit = min(
        wanted.batch_size, n_envs * n_steps // wanted.batches, config.workload.max_batch_size or wanted.batch_size
    )
    fitting = batch_sizes(n_envs * n_steps, (config.run.lanes or automatic_lanes(n_envs)) * config.algorithm.grad_accum)
    batch = max((size for size in fitting if size <= limit), default=fitting[0])
    if batch > (config.workload.max_batch_size or batch):
        raise UserError(
            f"max_batch_size {config.workload.max_batch_size} is less than the smallest batch that fits, {batch}"
        )
    return batch
