"""`lockstep plan`: the resolved configuration and who does what on N ranks; nothing is started."""

import json
from dataclasses import asdict, dataclass

from lockstep.cli import argv as command
from lockstep.cli.train import TrainOptions, help_for, ranks_here, read_config
from lockstep.config.sources import to_yaml
from lockstep.distributed.lanes import lanes_of_rank
from lockstep.launch.machines import Machines
from lockstep.run.plan import plan_rows
from lockstep.workloads import registry

USAGE = "lockstep plan WORKLOAD [--preset NAME] [--config FILE] [--FIELD VALUE]... [--gpus N | --ranks N] [--json]"


@dataclass(frozen=True, kw_only=True)
class PlanOptions(TrainOptions):
    """How it is shown."""

    json: bool = False
    """Print one JSON object."""


def plan(words: list[str]) -> int:
    """The verb `plan`."""
    name, rest = command.take_subject(words, "workload", lambda rest: help_for(rest, USAGE, PlanOptions))
    workload = registry.load(name)
    options, rest = command.take(rest, PlanOptions())
    config, notes = read_config(workload, options, rest)
    machines = Machines.parse(options.nnodes, options.rdzv_endpoint)
    here, more_notes = ranks_here(config, options, machines)
    ranks = here * (machines.most if machines else 1)
    config = config.for_world(ranks)
    rows = plan_rows(workload.name, config, ranks, _device(config.device))
    lanes = [list(lanes_of_rank(config.effective_lanes, rank, ranks)) for rank in range(ranks)]
    if options.json:
        whole = {
            "workload": workload.name,
            "ranks": ranks,
            "lanes": lanes,
            "plan": dict(rows),
            "config": asdict(config),
        }
        print(json.dumps(whole))
        return 0
    for line in [*notes, *more_notes, *(f"{what:12} {text}" for what, text in rows)]:
        print(line)
    print()
    for rank, owned in enumerate(lanes):
        print(f"rank {rank}: lanes {owned[0]} to {owned[-1]}" if len(owned) > 1 else f"rank {rank}: lane {owned[0]}")
    print(f"\n{to_yaml(config)}", end="")
    return 0


def _device(wanted: str) -> str:
    from lockstep.distributed.world import choose_device, describe_device

    return describe_device(choose_device(wanted, 0))
