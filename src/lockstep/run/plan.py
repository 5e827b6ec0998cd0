"""Who does what: the plan that a run prints before it starts. Nothing here needs torch."""

from lockstep.config.run_config import RunConfig
from lockstep.distributed.lanes import lanes_of_rank


def shares(total: int, config: RunConfig, size: int) -> str:
    """A global number and how the ranks divide it, by their lanes: '64 (24 + 24 + 16)'."""
    lanes = config.effective_lanes
    parts = [total * len(lanes_of_rank(lanes, rank, size)) // lanes for rank in range(size)]
    return f"{total:,}" if size == 1 else f"{total:,} ({' + '.join(f'{part:,}' for part in parts)})"


def plan_rows(workload: str, config: RunConfig, size: int, device: str, carrier: str = "") -> list[tuple[str, str]]:
    """The plan as (what, how much) rows: where it runs, how lanes are dealt, and the algorithm's own sizes.

    carrier: what carries tensors between ranks, in words, where that is known.
    """
    threads = f", {config.threads} thread(s) a rank" if config.threads else ""
    rows = [
        ("run", f"{workload} in {config.runs_dir}/{config.run_name or workload + '-<time>'}, seed {config.seed}"),
        ("device", f"{device}{threads}, precision {config.precision}"),
        ("ranks", f"{size}, sync {config.sync}, lanes {shares(config.effective_lanes, config, size)}"),
    ]
    if carrier:
        rows.append(("tensors", carrier))
    return rows + [(what, text) for what, text in config.work(lambda total: shares(total, config, size))]


def plan_lines(workload: str, config: RunConfig, size: int, device: str, carrier: str = "") -> list[str]:
    """The plan as lines to print."""
    return [f"{what:12} {text}" for what, text in plan_rows(workload, config, size, device, carrier)]
