"""The plan that a run prints before it starts: each rank's share of the work. Nothing here needs torch."""

from lockstep.config.config import AnyConfig
from lockstep.distributed.lanes import Sync, lanes_of_rank
from lockstep.output import counted


def shares(total: int, config: AnyConfig, size: int) -> str:
    """A global number and each rank's share, in proportion to its lanes: '64 (24 + 24 + 16)'."""
    lanes = config.effective_lanes
    parts = [total * len(lanes_of_rank(lanes, rank, size)) // lanes for rank in range(size)]
    return f"{total:,}" if size == 1 else f"{total:,} ({' + '.join(f'{part:,}' for part in parts)})"


def plan_rows(
    workload: str, config: AnyConfig, size: int, device: str, sync: Sync, carrier: str = ""
) -> list[tuple[str, str]]:
    """The plan as (label, text) rows: device, ranks and lanes, and the algorithm's own sizes.

    `sync`: what is in force on that device. `carrier`: what carries tensors between ranks, if known.
    """
    run = config.run
    threads = f", {counted(run.threads, 'thread')} a rank" if run.threads else ""
    rows = [
        ("run", f"{workload} in {run.runs_dir}/{run.run_name or workload + '-<time>'}, seed {run.seed}"),
        ("device", f"{device}{threads}, precision {run.precision}"),
        ("ranks", f"{size}, sync {sync}, lanes {shares(config.effective_lanes, config, size)}"),
    ]
    if carrier:
        rows.append(("tensors", carrier))
    return rows + [(label, text) for label, text in config.work(lambda total: shares(total, config, size))]


def plan_lines(workload: str, config: AnyConfig, size: int, device: str, sync: Sync, carrier: str = "") -> list[str]:
    """The plan as lines to print."""
    return [f"{label:12} {text}" for label, text in plan_rows(workload, config, size, device, sync, carrier)]
